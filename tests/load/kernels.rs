//! The kernels, assembled by NVIDIA's assembler for every GPU that it knows: none is empty.
//!
//! The assembler and the disassembler are packages of PyPI with a licence that does not allow to pass them on. They are
//! fetched once, into `target`.

use crate::support::{self, skip};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEST: &str = "kernels::every_kernel_does_its_work_on_every_gpu";

/// Compute capabilities: Turing, Ampere, Ada, Hopper and Blackwell, with Thor and GB10.
const GPUS: [u32; 10] = [75, 80, 86, 89, 90, 100, 103, 110, 120, 121];

/// What the machine code of each kernel must have: instructions, by the beginnings of their names.
const WORK: [(&str, &[(&str, usize)]); 8] = [
    ("tranche_fma", &[("FFMA", 16), ("STG", 1), ("BRA", 1)]),
    ("tranche_copy", &[("LDG", 1), ("STG", 1), ("BRA", 2)]),
    ("tranche_spin", &[("FFMA", 8), ("ATOM", 1), ("STG", 1), ("BRA", 1)]),
    ("tranche_probe", &[("BRA", 1), ("STG", 2)]),
    ("tranche_trap", &[("BPT", 1), ("STG", 1)]),
    ("tranche_address", &[("STG", 1)]),
    ("tranche_fill", &[("STG", 1), ("BRA", 1)]),
    ("tranche_compare", &[("LDG", 1), ("BRA", 1)]),
];

/// The directory of the assembler and the disassembler.
fn assembler() -> Result<PathBuf, String> {
    let directory = support::top().join("target/nvidia/assembler");
    let programs = directory.join("nvidia/cu13/bin");
    if !programs.join("nvdisasm").exists() {
        let mut pip = Command::new("pip");
        pip.args(["install", "--quiet", "--no-deps", "--upgrade", "--only-binary=:all:"]);
        pip.args(["--disable-pip-version-check", "--root-user-action=ignore", "--target"]);
        pip.arg(&directory)
            .args(["nvidia-cuda-nvcc==13.*", "nvidia-cuda-nvdisasm==13.*"]);
        let output = pip.output().map_err(|e| format!("pip cannot be run: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let why = said.lines().next_back().unwrap_or_default();
            return Err(format!("pip does not bring NVIDIA's assembler: {why}"));
        }
    }
    for program in ["ptxas", "nvdisasm"] {
        let program = programs.join(program);
        let about = |e: std::io::Error| format!("{}: {e}", program.display());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(about)?;
    }
    Ok(programs)
}

/// The names of the instructions of each kernel.
fn instructions(programs: &Path, binary: &Path) -> BTreeMap<String, Vec<String>> {
    let output = Command::new(programs.join("nvdisasm"))
        .arg("-c")
        .arg(binary)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut kernels, mut kernel) = (BTreeMap::<String, Vec<String>>::new(), String::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(name) = line.strip_prefix(".text.") {
            kernel = name.trim_end_matches(':').to_owned();
        } else if line.trim_start().starts_with("/*") {
            // `/*0070*/   @!P0 LDG.E R4, [R2] ;`
            let mut words = line.split("*/").nth(1).unwrap_or_default().split_whitespace();
            let word = words.find(|word| !word.starts_with('@'));
            kernels
                .entry(kernel.clone())
                .or_default()
                .extend(word.map(str::to_owned));
        }
    }
    kernels
}

#[test]
fn every_kernel_does_its_work_on_every_gpu() {
    let programs = match assembler() {
        Ok(programs) => programs,
        Err(why) => return skip::not_run(TEST, &why),
    };
    let directory = tempfile::tempdir().unwrap();
    let text = support::top().join("verify/src/load/kernels.ptx");
    for gpu in GPUS {
        let binary = directory.path().join(gpu.to_string());
        let mut assembler = Command::new(programs.join("ptxas"));
        assembler
            .arg(format!("--gpu-name=sm_{gpu}"))
            .arg("--output-file")
            .arg(&binary)
            .arg(&text);
        let output = assembler.output().unwrap();
        assert!(
            output.status.success(),
            "sm_{gpu}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let kernels = instructions(&programs, &binary);
        assert_eq!(kernels.len(), WORK.len(), "sm_{gpu}: {:?}", kernels.keys());
        for (kernel, work) in WORK {
            for (name, least) in work {
                let all = &kernels[kernel];
                let count = all.iter().filter(|instruction| instruction.starts_with(name)).count();
                assert!(count >= *least, "sm_{gpu}: {kernel} has {count} {name}: {all:?}");
            }
        }
    }
}
