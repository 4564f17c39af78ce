//! Every kind of file is searched wherever one kind was found, and in both word sizes.

use super::*;
use crate::support::ld_so_cache;
use crate::support::stub_elf::Machine;

const VERSION: &str = "565.77";

/// A Fedora host whose driver lies in `to`: its libraries in `to/lib64`, its programs in `to/bin`, its configuration in
/// `to/share`; the loader's cache has the libraries.
fn moved(to: &str) -> Bed {
    let bed = bed("fedora-workstation");
    let at = |path: String| bed.host.path(&path);
    for dir in ["lib64", "bin", "share/vulkan/icd.d"] {
        fs::create_dir_all(at(format!("{to}/{dir}"))).unwrap();
    }
    let is_drivers = |name: &str| name.contains("nvidia") || name.contains("libcuda") || name.contains("libnvcuvid");
    for dir in ["lib64", "bin"] {
        for entry in fs::read_dir(at(format!("/usr/{dir}"))).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if is_drivers(&name) && !entry.file_type().unwrap().is_dir() {
                fs::rename(entry.path(), at(format!("{to}/{dir}/{name}"))).unwrap();
            }
        }
    }
    let icd = "share/vulkan/icd.d/nvidia_icd.x86_64.json";
    fs::rename(at(format!("/usr/{icd}")), at(format!("{to}/{icd}"))).unwrap();
    let library = format!("{to}/lib64/libcuda.so.{VERSION}");
    let entry = ld_so_cache::Entry::new(Path::new(&library), "libcuda.so.1", Machine::X86_64);
    fs::write(at("/etc/ld.so.cache".to_owned()), ld_so_cache::write(vec![entry])).unwrap();
    bed
}

/// Where `name` lies on the host and in a container.
fn places(inventory: &Inventory, name: &str) -> Vec<(String, String)> {
    let files = &inventory.driver.as_ref().unwrap().files;
    let named = files.iter().filter(|f| f.container.file_name() == name);
    named.map(|f| (f.host.to_string(), f.container.to_string())).collect()
}

/// The driver of Flatcar is below `/opt/nvidia`, that of Google's and others' small systems in `/var/lib/nvidia`: the
/// loader's cache names the libraries, and programs and configuration are beside them
/// (NVIDIA/nvidia-container-toolkit#134).
#[test]
fn programs_and_configuration_are_found_beside_the_libraries() {
    for to in ["/opt/nvidia/565.77/6.6.60-flatcar/usr", "/var/lib/nvidia"] {
        let inventory = moved(to).look();
        assert_eq!(warnings(&inventory), [""; 0], "{to}");
        assert!(has_file(&inventory, &format!("libcuda.so.{VERSION}")), "{to}");
        // A container searches no such directory for programs.
        for program in ["nvidia-smi", "nvidia-cuda-mps-control"] {
            let expected = (format!("{to}/bin/{program}"), format!("/usr/bin/{program}"));
            assert_eq!(places(&inventory, program), [expected], "{to}");
        }
        let icd = "vulkan/icd.d/nvidia_icd.x86_64.json";
        let expected = (format!("{to}/share/{icd}"), format!("/etc/{icd}"));
        assert_eq!(places(&inventory, "nvidia_icd.x86_64.json"), [expected], "{to}");
    }
}

/// Flatcar has links in `/opt/bin` to programs that may be anywhere.
#[test]
fn programs_are_found_by_links_in_opt_bin() {
    let bed = bed("fedora-workstation");
    fs::create_dir_all(bed.host.path("/opt/bin")).unwrap();
    fs::rename(bed.host.path("/usr/bin/nvidia-smi"), bed.host.path("/opt/smi")).unwrap();
    symlink("/opt/smi", bed.host.path("/opt/bin/nvidia-smi")).unwrap();
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    let expected = ("/opt/smi".to_owned(), "/usr/bin/nvidia-smi".to_owned());
    assert_eq!(places(&inventory, "nvidia-smi"), [expected]);
}

#[test]
fn a_host_without_nvidia_smi_is_a_warning() {
    let bed = bed("fedora-workstation");
    bed.remove("/usr/bin/nvidia-smi");
    let told = one_warning(&bed.look());
    assert!(told.starts_with("nvidia-smi: was not found, so containers"), "{told}");
    assert!(told.ends_with("--program-search-path"), "{told}");
}

/// Fedora has a Vulkan file for each word size.
#[test]
fn the_configuration_of_32_bit_programs_is_taken_with_their_libraries() {
    let compat32 = DiscoveryOptions {
        compat32: true,
        ..options()
    };
    let icd = "nvidia_icd.i686.json";
    let fedora = bed("fedora-workstation");
    assert_eq!(places(&fedora.look(), icd), []);
    let both = fedora.look_with(&compat32);
    assert_eq!(warnings(&both), [""; 0]);
    let taken = file(&both, &format!("/etc/vulkan/icd.d/{icd}"));
    assert_eq!(taken.capability, DriverCapability::Compat32);
    // Without the library that it names, a program of 32 bits sees no GPU.
    fedora.remove("/usr/lib/libGLX_nvidia.so.0");
    fedora.remove(&format!("/usr/lib/libGLX_nvidia.so.{VERSION}"));
    let told = one_warning(&fedora.look_with(&compat32));
    assert!(told.contains(icd) && told.contains("libGLX_nvidia.so.0"), "{told}");

    // NixOS has what 32-bit programs read in a place of its own.
    let nixos = bed("nixos");
    let dir = "/run/opengl-driver-32/share/vulkan/icd.d";
    fs::create_dir_all(nixos.host.path(dir)).unwrap();
    fs::write(nixos.host.path(&format!("{dir}/{icd}")), "{}").unwrap();
    let expected = (format!("{dir}/{icd}"), format!("/etc/vulkan/icd.d/{icd}"));
    assert_eq!(places(&nixos.look_with(&compat32), icd), [expected]);
    assert_eq!(places(&nixos.look(), icd), []);
}

/// Without a cache of the loader, a link to a program shows where the libraries are.
#[test]
fn libraries_are_found_beside_the_programs() {
    let to = "/opt/nvidia/565.77/6.6.60-flatcar/usr";
    let bed = moved(to);
    bed.remove("/etc/ld.so.cache");
    fs::create_dir_all(bed.host.path("/opt/bin")).unwrap();
    symlink(format!("{to}/bin/nvidia-smi"), bed.host.path("/opt/bin/nvidia-smi")).unwrap();
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    let library = format!("libcuda.so.{VERSION}");
    let path = format!("{to}/lib64/{library}");
    assert_eq!(places(&inventory, &library), [(path.clone(), path)]);
}

/// The directories that a person names take the place of the known ones, as for libraries and configuration.
#[test]
fn a_person_can_name_the_directory_of_the_programs() {
    let bed = bed("fedora-workstation");
    fs::create_dir_all(bed.host.path("/srv/tools")).unwrap();
    fs::rename(
        bed.host.path("/usr/bin/nvidia-smi"),
        bed.host.path("/srv/tools/nvidia-smi"),
    )
    .unwrap();
    let inventory = bed.look_with(&DiscoveryOptions {
        program_search_paths: vec![HostPath::new("/srv/tools").unwrap()],
        ..options()
    });
    assert_eq!(warnings(&inventory), [""; 0]);
    let expected = ("/srv/tools/nvidia-smi".to_owned(), "/usr/bin/nvidia-smi".to_owned());
    assert_eq!(places(&inventory, "nvidia-smi"), [expected]);
    assert_eq!(places(&inventory, "nvidia-cuda-mps-control"), []);
}
