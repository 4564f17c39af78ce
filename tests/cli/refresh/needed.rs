//! What every container needs, and nobody can do without: a host that lacks it is not complete, and one that lacks
//! something else is.

use super::changed::Machine;
use super::*;
use std::path::PathBuf;

/// The files of the driver on the host whose names begin with one of `stems`.
fn files(machine: &Machine, stems: &[&str]) -> Vec<PathBuf> {
    let inside = |dir: &str| fs::read_dir(machine.host.path(dir)).into_iter().flatten();
    let dirs = ["/usr/lib64", "/usr/lib/x86_64-linux-gnu"];
    let all = dirs
        .iter()
        .flat_map(|dir| inside(dir))
        .map(|entry| entry.unwrap().path());
    all.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        stems.iter().any(|stem| name.starts_with(stem))
    })
    .collect()
}

fn moved(file: &Path) -> PathBuf {
    PathBuf::from(format!("{}.moved", file.display()))
}

fn move_away(files: &[PathBuf]) {
    for file in files {
        fs::rename(file, moved(file)).unwrap();
    }
}

fn move_back(files: &[PathBuf]) {
    for file in files {
        fs::rename(moved(file), file).unwrap();
    }
}

/// AgentBaker#9150: the module is loaded before the libraries are installed. A container with nodes and no library
/// would compute without its GPU, silently.
#[test]
fn without_a_library_there_is_no_device() {
    let machine = Machine::new("workstation-rtx4090");
    let libraries = files(&machine, &["lib"]);
    assert!(libraries.len() > 30, "{}", libraries.len());
    move_away(&libraries);
    for more in [&[][..], &["--degraded"]] {
        let said = machine.run(more);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.err.contains("has no libraries, so there is no device to offer"),
            "{said:?}"
        );
        assert_eq!(machine.bed.names(), "");
    }
    move_back(&libraries);
    machine.settle();
    let names = machine.bed.names();
    // Nor does it replace what there was.
    move_away(&libraries);
    assert_eq!(machine.run(&["--degraded"]).code, Some(1));
    assert_eq!(machine.bed.names(), names);
}

/// toolbox#1694: a machine that draws and does not compute.
#[test]
fn libcuda_is_missed_only_where_somebody_computes() {
    const OF_CUDA: [&str; 9] = [
        "libcuda.so",
        "libcudadebugger",
        "libnvcuvid",
        "libnvidia-compiler",
        "libnvidia-encode",
        "libnvidia-fatbinaryloader",
        "libnvidia-opencl",
        "libnvidia-nvvm",
        "libnvidia-ptxjitcompiler",
    ];
    let machine = Machine::new("workstation-rtx4090");
    let libcuda = files(&machine, &["libcuda.so"]);
    move_away(&libcuda);
    let said = machine.run(&[]);
    let is_missed = |said: &Said| {
        said.err
            .contains("libcuda.so.1 was not found among the driver's libraries")
    };
    assert!(said.code == Some(1) && is_missed(&said), "{said:?}");
    let machine = Machine::new("workstation-rtx4090");
    move_away(&files(&machine, &OF_CUDA));
    let said = machine.run(&[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let options = machine.options();
    let host = options.iter().filter(|option| option.contains("-root="));
    let host: Vec<&str> = host.map(String::as_str).collect();
    let generate = |capabilities: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(["cdi", "generate", "--driver-capabilities", capabilities]);
        super::said(&command.args(&host).output().unwrap())
    };
    for (capabilities, code) in [
        ("all", 0),
        ("graphics,display", 0),
        ("compute", 1),
        ("compute,utility", 1),
    ] {
        let said = generate(capabilities);
        assert_eq!(said.code, Some(code), "{capabilities}: {}", said.err);
        assert_eq!(is_missed(&said), code == 1, "{capabilities}: {}", said.err);
    }
}

/// A package that is updated without the driver, or removed; a program in a package of its own; a daemon that is
/// stopped.
#[test]
fn what_a_container_can_do_without_may_go() {
    let machine = Machine::new("workstation-rtx4090");
    machine.settle();
    let spec = || fs::read_to_string(machine.bed.spec("tranche.yaml")).unwrap();
    let before = spec();
    // The link leads to another file: nothing changes.
    let libraries = files(&machine, &["libnvidia-egl-wayland.so.1"]);
    let is_link = |file: &&PathBuf| file.is_symlink();
    let (links, own): (Vec<&PathBuf>, Vec<&PathBuf>) = libraries.iter().partition(is_link);
    assert_eq!((links.len(), own.len()), (1, 1), "{libraries:?}");
    let newer = own[0].with_file_name("libnvidia-egl-wayland.so.1.1.99");
    fs::rename(own[0], &newer).unwrap();
    fs::remove_file(links[0]).unwrap();
    std::os::unix::fs::symlink(newer.file_name().unwrap(), links[0]).unwrap();
    assert!(machine.is_changed());
    assert_eq!(spec(), before);
    let library = vec![newer, links[0].clone()];
    for (part, gone) in [
        ("libnvidia-egl-wayland.so.1", library),
        (
            "/usr/bin/nvidia-xconfig",
            vec![machine.host.path("/usr/bin/nvidia-xconfig")],
        ),
        (
            "nvidia-persistenced/socket",
            vec![machine.host.path("/run/nvidia-persistenced/socket")],
        ),
    ] {
        assert!(spec().contains(part), "{part}");
        move_away(&gone);
        let said = machine.run(&["--if-changed"]);
        assert_eq!(said.code, Some(0), "{part}: {said:?}");
        assert!(!spec().contains(part), "{part}");
        move_back(&gone);
        machine.settle();
        assert_eq!(spec(), before, "{part}");
    }
}

/// A node of another driver, or a file that somebody left in its place.
#[test]
fn a_control_node_that_is_wrong_or_missing_leaves_the_good_specification() {
    for node in ["nvidia-uvm", "nvidiactl"] {
        let machine = Machine::new("workstation-rtx4090");
        machine.settle();
        let spec = || fs::read_to_string(machine.bed.spec("tranche.yaml")).unwrap();
        let good = spec();
        assert!(good.contains(&format!("/dev/{node}\n")), "{good}");
        let path = machine.host.path(&format!("/dev/{node}"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        let said = machine.run(&["--if-changed"]);
        let text =
            format!("not refreshed, because the host was not examined completely: /dev/{node} is not the driver's");
        assert!(said.code == Some(1) && said.err.contains(&text), "{said:?}");
        assert_eq!(spec(), good);
        // Its module is not loaded, so its number is not known either.
        fs::remove_file(&path).unwrap();
        let devices = machine.host.path("/proc/devices");
        let numbers = fs::read_to_string(&devices).unwrap();
        let others = numbers.lines().filter(|line| !line.ends_with(&format!(" {node}")));
        let others = others.filter(|line| node != "nvidiactl" || !line.contains("nvidia"));
        fs::write(&devices, others.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let said = machine.run(&["--if-changed"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.err
                .contains(&format!("/dev/{node} is not the driver's node, or is missing")),
            "{said:?}"
        );
        assert_eq!(spec(), good);
    }
}

/// An instance that is being made exists a moment before its nodes do: to examine the host then is no reason to refuse.
#[test]
fn a_node_of_mig_that_comes_in_a_moment_is_waited_for() {
    let machine = Machine::new("dgx-a100-mig");
    machine.settle();
    let inventory = machine.bed.host_file().inventory;
    let gpu = inventory.gpus.iter().find(|gpu| !gpu.mig_devices.is_empty()).unwrap();
    let instance = gpu.mig_devices[0].gpu_instance;
    let files = [
        "/proc/driver/nvidia-caps/mig-minors".to_owned(),
        format!(
            "/proc/driver/nvidia/capabilities/gpu{}/mig/gi{instance}/ci0/access",
            gpu.index
        ),
    ];
    let files: Vec<PathBuf> = files
        .iter()
        .map(|file| machine.host.path(file))
        .filter(|file| file.exists())
        .collect();
    assert!(!files.is_empty());
    // It does not come.
    move_away(&files);
    let said = machine.run(&[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("/access: no container can use it"), "{said:?}");
    // It comes after the host was examined once.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(150));
            move_back(&files);
        });
        let said = machine.run(&[]);
        assert_eq!(said.code, Some(0), "{said:?}");
    });
}
