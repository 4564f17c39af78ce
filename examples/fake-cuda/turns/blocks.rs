//! The memory of devices: for each block a file, in a directory for each GPU.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The blocks that a process has on a GPU, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// On the device.
    files: BTreeMap<u64, (File, PathBuf, u64)>,
    /// In host memory, while the process is suspended.
    copies: BTreeMap<u64, Vec<u8>>,
}

impl Blocks {
    /// Bytes that it has, on the device or in host memory.
    pub(super) fn bytes(&self) -> u64 {
        let on_device = self.files.values().map(|(.., bytes)| bytes).sum::<u64>();
        on_device + self.copies.values().map(|copy| copy.len() as u64).sum::<u64>()
    }

    /// Takes a block, of zeros. Whether it fits was checked before.
    pub(super) fn allocate(&mut self, gpu: &Path, name: &str, address: u64, bytes: u64) -> io::Result<()> {
        fs::create_dir_all(gpu)?;
        let path = gpu.join(format!("{name}.{address:x}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.set_len(bytes)?;
        self.files.insert(address, (file, path, bytes));
        Ok(())
    }

    pub(super) fn free(&mut self, address: u64) {
        if let Some((_, path, _)) = self.files.remove(&address) {
            let _ = fs::remove_file(path);
        }
    }

    /// Writes to `address`; `None` if that is in no block.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let (file, offset) = self.place(address, bytes.len())?;
        file.write_all_at(bytes, offset).ok()
    }

    /// Reads from `address`.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let (file, offset) = self.place(address, bytes.len())?;
        file.read_exact_at(bytes, offset).ok()
    }

    fn place(&self, address: u64, length: usize) -> Option<(&File, u64)> {
        let (start, (file, _, bytes)) = self.files.range(..=address).next_back()?;
        let offset = address - start;
        (offset + length as u64 <= *bytes).then_some((file, offset))
    }

    /// Copies everything to host memory, and frees the device.
    pub(super) fn copy_out(&mut self) -> io::Result<()> {
        for (address, (file, path, bytes)) in std::mem::take(&mut self.files) {
            let mut copy = vec![0; bytes as usize];
            file.read_exact_at(&mut copy, 0)?;
            fs::remove_file(path)?;
            self.copies.insert(address, copy);
        }
        Ok(())
    }

    /// Changes the last byte of each block.
    pub(super) fn damage(&self) {
        for (file, _, bytes) in self.files.values() {
            let mut byte = [0];
            let _ = file.read_exact_at(&mut byte, bytes - 1);
            let _ = file.write_all_at(&[!byte[0]], bytes - 1);
        }
    }

    /// Copies everything back.
    pub(super) fn copy_in(&mut self, gpu: &Path, name: &str) -> io::Result<()> {
        for (address, copy) in std::mem::take(&mut self.copies) {
            self.allocate(gpu, name, address, copy.len() as u64)?;
            self.write(address, &copy).ok_or_else(|| io::Error::other("no block"))?;
        }
        Ok(())
    }
}

/// Bytes that all but `own` have on a GPU. For one who holds the directory.
pub(super) fn used_by_others(directory: &Path, gpu: &Path, own: &str) -> u64 {
    let blocks = fs::read_dir(gpu).into_iter().flatten().flatten();
    let of_others = blocks.filter(|block| {
        let name = block.file_name();
        let name = name
            .to_str()
            .and_then(|name| name.split_once('.'))
            .map(|(name, _)| name);
        name.is_some_and(|name| name != own && super::lives(directory, name))
    });
    of_others
        .filter_map(|block| block.metadata().ok())
        .map(|data| data.len())
        .sum()
}

/// Frees what a target has on any GPU.
pub(super) fn remove_all(directory: &Path, name: &str) {
    let begins = format!("{name}.");
    let gpus = fs::read_dir(directory).into_iter().flatten().flatten();
    for gpu in gpus.map(|gpu| gpu.path()).filter(|gpu| gpu.is_dir()) {
        for block in fs::read_dir(gpu).into_iter().flatten().flatten() {
            if block.file_name().to_string_lossy().starts_with(&begins) {
                let _ = fs::remove_file(block.path());
            }
        }
    }
}
