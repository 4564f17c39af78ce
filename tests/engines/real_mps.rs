//! A real client of MPS in a container of a real engine: CUDA's library of Debian's package libcuda1, NVIDIA's daemon
//! and server of the same version, and tranche's broker between them. The GPU is a fake, so that the server finds no
//! device, and cuInit ends with 805. In a user namespace, the same client is in `tests/mps/client.rs`: podman as root
//! with `--uidmap` cannot run hooks that read the bundle (docs/how-to/engines.md).

use crate::shares::place;
use crate::support::{cuda_client, engines, fake_host, glibc_image, nvidia_packages, programs, session, skip};
use engines::{Bed, Engine};
use nvidia_packages::{BRANCHES, unpacked};
use session::session;
use std::fs;

const POLICY: &str = "\
version: v1
sharing:
  mps:
    grace: 1
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%}
      - {name: small, compute: 40%}
";

const SCRIPT: &str = r#"
step generate tranche cdi generate $place --cdi-version 0.5 --hook-path "$oci" --output /etc/cdi/nvidia.yaml
"$program" broker $place --spec-dir /run/cdi < /dev/null > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock
# Both clients are in one container: a share whose server does not start is refused from then on.
step big start big "$1" --device nvidia.com/gpu=1.big
step sockets podman exec big /bin/ls -A /tmp/nvidia-mps
refused() { podman exec "$1" /bin/touch /tmp/nvidia-mps/new 2>&1 | grep -c 'Read-only file system'; }
step writes refused big
step root podman exec big /bin/client
step user podman exec --user 1000:1000 big /bin/client
step log find /run/tranche/mps-log -name output.log -exec cat '{}' ';'
step status tranche mps status
podman rm --all --force --time 0 > /dev/null 2>&1
kill "$broker"
wait "$broker" 2> /dev/null
# The daemon outlives its broker, and must not outlive the test.
daemon=$(awk 'NR == 2 { print $3 }' "$bed/steps/status.text")
is_over "$daemon" || kill -9 "$daemon"
"#;

#[test]
fn a_real_client_in_a_container_reaches_the_start_of_a_server() {
    for branch in BRANCHES {
        let test = format!("real_mps::a_real_client_in_a_container_reaches_the_start_of_a_server {branch}");
        let engine = Engine::PodmanCrun;
        let missing = engine.missing().or_else(glibc_image::missing);
        let packages = ["nvidia-cuda-mps", "libcuda1"].map(|package| unpacked(package, branch));
        let (mps, cuda) = match (missing, packages) {
            (None, [Ok(mps), Ok(cuda)]) => (mps, cuda),
            (Some(why), _) | (_, [Err(why), _] | [_, Err(why)]) => {
                skip::not_run(&test, &why);
                continue;
            }
        };
        // Debian's version has a revision after the driver's.
        let driver = mps.version.split('-').next().unwrap();
        let bed = Bed::new();
        let host = fake_host::build_with_driver("t4x2-old-driver", driver, &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&test, &missing.why);
            continue;
        }
        for (from, to) in [
            ("usr/bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control"),
            ("usr/sbin/nvidia-cuda-mps-server", "/usr/sbin/nvidia-cuda-mps-server"),
        ] {
            programs::install(mps.root.join(from), host.path(to));
        }
        let _ = fs::remove_file(host.path("/usr/bin/nvidia-cuda-mps-server"));
        let library = format!("libcuda.so.{driver}");
        let mut entries = walkdir::WalkDir::new(&host.root).into_iter().flatten();
        let stub = entries.find(|entry| entry.file_name().to_str() == Some(library.as_str()));
        let stub = stub.unwrap_or_else(|| panic!("the host has no {library}")).into_path();
        fs::remove_file(&stub).unwrap();
        fs::copy(cuda.cuda(), &stub).unwrap();
        // The broker gives the daemon the directory of the library, unless a C library of another system is in it.
        fs::remove_file(stub.with_file_name("libc.so.6")).unwrap();
        fs::write(bed.at("policy.yaml"), POLICY).unwrap();
        let place = place(&bed).join(" ");
        let program = env!("CARGO_BIN_EXE_tranche");
        // The session makes the image, and the client is put into it before a container starts.
        let made = bed.at("client");
        fs::create_dir(&made).unwrap();
        cuda_client::image(&made).unwrap();
        let fill = format!(
            "for image; do cp -a \"{}/.\" \"$image/\" 2> /dev/null; done",
            made.display()
        );
        let script = format!("place='{place}'\nprogram='{program}'\n{fill}\n{SCRIPT}");
        let session = session(&bed, engine, 1, &script);
        session.ok("generate");
        let log = session.step("log").text.clone();
        assert_eq!(session.ok("sockets").trim(), "control", "{driver}");
        assert_eq!(session.ok("writes").trim(), "1", "{driver}: the directory is read-only");
        assert_eq!(session.ok("root").trim(), "uid 0: cuInit 805", "{driver}: {log}");
        assert_eq!(session.ok("user").trim(), "uid 1000: cuInit 805", "{driver}: {log}");
        for line in [
            "Starting new server",
            "Driver initialization failed with: no CUDA-capable device is detected",
        ] {
            assert!(log.contains(line), "{driver}: no {line:?} in {log}");
        }
    }
}
