/*
 * Stands in for the kernel module of NVIDIA's driver in the machine of `make test-vm`.
 *
 * It makes what tranche reads of a driver and what containers open: the files in /proc/driver, the numbers of the devices
 * in /proc/devices, and /sys/module/nvidia/version. Its devices can be opened, and read as zeros. Like the driver, it
 * makes no nodes in /dev. Everything is gone when it is removed. `host.h` has the contents, made by tests/vm/driver.sh of
 * a test host's /proc.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

/* A file or, without a text, a directory below /proc; a directory comes before what is in it. */
struct entry {
	const char *path;
	const char *text;
};

/* Some minors of a major number. */
struct numbers {
	unsigned int major;
	unsigned int first;
	unsigned int count;
	const char *name;
};

#include "host.h"

static ssize_t zeros(struct file *file, char __user *buffer, size_t count, loff_t *offset)
{
	return clear_user(buffer, count) ? -EFAULT : count;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = zeros,
	.llseek = noop_llseek,
};

/* The driver's option for its tools and libraries: whether they make device nodes and change their modes. */
static int NVreg_ModifyDeviceFiles = 1;
module_param(NVreg_ModifyDeviceFiles, int, 0);

static int show(struct seq_file *file, void *unused)
{
	const struct entry *entry = file->private;
	static const char modifies[] = "ModifyDeviceFiles: 1";
	const char *at = NVreg_ModifyDeviceFiles ? NULL : strstr(entry->text, modifies);

	if (at)
		seq_printf(file, "%.*sModifyDeviceFiles: 0%s", (int)(at - entry->text), entry->text, at + strlen(modifies));
	else
		seq_puts(file, entry->text);
	return 0;
}

static void remove_files(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tops); i++)
		remove_proc_subtree(tops[i], NULL);
}

static void remove_numbers(size_t count)
{
	while (count--)
		__unregister_chrdev(devices[count].major, devices[count].first, devices[count].count, devices[count].name);
}

static int __init start(void)
{
	size_t i;
	int error;

	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		error = __register_chrdev(devices[i].major, devices[i].first, devices[i].count, devices[i].name, &operations);
		if (error < 0) {
			pr_err("nvidia: number %u is in use: %d\n", devices[i].major, error);
			remove_numbers(i);
			return error;
		}
	}
	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		const struct entry *entry = &entries[i];
		struct proc_dir_entry *made;

		if (entry->text)
			made = proc_create_single_data(entry->path, 0444, NULL, show, (void *)entry);
		else
			made = proc_mkdir(entry->path, NULL);
		if (!made) {
			pr_err("nvidia: cannot make /proc/%s\n", entry->path);
			remove_files();
			remove_numbers(ARRAY_SIZE(devices));
			return -ENOMEM;
		}
	}
	return 0;
}

static void __exit end(void)
{
	remove_files();
	remove_numbers(ARRAY_SIZE(devices));
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("A stand-in for a GPU's driver, for tests");
MODULE_LICENSE("Apache-2.0");
MODULE_VERSION(DRIVER_VERSION);
