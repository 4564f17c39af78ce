//! A real client: CUDA's library of Debian's package libcuda1 in a container's place, and the real daemon of its
//! version.
//!
//! cuInit connects to the daemon before it opens a device node, and the daemon starts a server, so that the way up to
//! there needs no GPU. The client sees a directory with a hard link to `control` alone, mounted read-only, as
//! containers of tranche do. The server then finds no device, and cuInit ends with 805
//! (CUDA_ERROR_MPS_CONNECTION_FAILED).

use crate::bed::Bed;
use crate::support::{cuda_client, glibc_image, nvidia_packages as packages, skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tranche_core::mps::version::{CONTROL, Version};

/// A client of this user, in the root, with the share's directory read-only.
fn client(root: &Path, share: &Path, who: &str) -> Command {
    let run = match who {
        "root" => "exec chroot \"$root\" /bin/client",
        "uid 1000" => "exec chroot --userspec=1000:1000 \"$root\" /bin/client",
        _ => {
            "exec setpriv --reuid=1000 --regid=1000 --clear-groups unshare --user --map-root-user \
             chroot \"$root\" /bin/client"
        }
    };
    let script = format!(
        "root=$1 share=$2
         mount --bind \"$share\" \"$root/tmp/nvidia-mps\"
         mount -o remount,bind,ro \"$root/tmp/nvidia-mps\"
         mount --rbind /proc \"$root/proc\"
         {run}"
    );
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=1",
        "20",
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-eu",
        "-c",
    ]);
    command
        .arg(script)
        .arg("sh")
        .arg(root)
        .arg(share)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn reach(branch: u32) {
    let test = format!("mps::a_real_client_reaches_the_start_of_a_server_of_{branch}");
    let missing = glibc_image::missing();
    let packages = ["nvidia-cuda-mps", "libcuda1"].map(|package| packages::unpacked(package, branch));
    let (daemon, cuda) = match (missing, packages) {
        (None, [Ok(daemon), Ok(cuda)]) => (daemon, cuda),
        (Some(why), _) | (_, [Err(why), _] | [_, Err(why)]) => return skip::not_run(&test, &why),
    };
    let library = cuda.cuda();
    let bed = Bed::real(Version::of_driver(branch).unwrap(), &daemon);
    let root = bed.at("root");
    fs::create_dir(&root).unwrap();
    cuda_client::image(&root).unwrap();
    fs::copy(&library, root.join("lib/x86_64-linux-gnu/libcuda.so.1")).unwrap();
    let begin = Instant::now();
    for (who, uid) in [
        ("root", 0),
        ("uid 1000", 1000),
        ("root of a user namespace of uid 1000", 1000),
    ] {
        bed.clear();
        let mut command = bed.program(&["-f"]);
        // The server loads the library, too.
        let libraries = bed.at("libraries");
        fs::create_dir_all(&libraries).unwrap();
        fs::copy(&library, libraries.join("libcuda.so.1")).unwrap();
        command.env("LD_LIBRARY_PATH", &libraries);
        let running = bed.start_command(command).unwrap();
        let share = bed.at("other");
        fs::create_dir(&share).unwrap();
        fs::hard_link(bed.pipe().join(CONTROL), share.join(CONTROL)).unwrap();
        let ran = client(&root, &share, who).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let err = String::from_utf8_lossy(&ran.stderr);
        let log = bed.log(&running);
        let inside = if who == "uid 1000" { 1000 } else { 0 };
        assert_eq!(
            said,
            format!("uid {inside}: cuInit 805\n"),
            "{branch} {who}: {err} {log:#?}"
        );
        for line in [
            format!("Starting new server N for user {uid}"),
            "Driver initialization failed with: no CUDA-capable device is detected".to_owned(),
        ] {
            assert!(log.contains(&line), "{branch} {who}: no {line:?} in {log:#?}");
        }
        let of_user = format!(" from user {uid}: ");
        let is_new = |line: &String| line.starts_with("NEW CLIENT ") && line.contains(&of_user);
        assert!(log.iter().any(is_new), "{branch} {who}: {log:#?}");
        // Without the share, the same client finds no driver at all.
        fs::remove_file(share.join(CONTROL)).unwrap();
        let ran = client(&root, &share, who).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(
            said.ends_with(": cuInit 100\n"),
            "{branch} {who} without a share: {said}"
        );
    }
    let seconds = begin.elapsed().as_secs_f64();
    let version = &cuda.version;
    let report = format!(
        "MPS {branch}: a client of libcuda1 {version} as 3 users reaches the start of a server, in {seconds:.1} s\n"
    );
    let _ = std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes());
}

#[test]
fn a_real_client_reaches_the_start_of_a_server_of_470() {
    reach(470);
}

#[test]
fn a_real_client_reaches_the_start_of_a_server_of_535() {
    reach(535);
}

#[test]
fn a_real_client_reaches_the_start_of_a_server_of_550() {
    reach(550);
}

#[test]
fn a_real_client_reaches_the_start_of_a_server_of_555() {
    reach(555);
}
