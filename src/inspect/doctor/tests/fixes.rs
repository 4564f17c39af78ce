//! How each fix is known to work.

use super::*;
use std::collections::BTreeSet;

/// How the fix of a finding is known to work.
enum Shown {
    /// A test runs the command, and doctor after it: `file::name` below tests/.
    Test(&'static str),
    /// The booted machine does: the beginning of a line of tests/vm/checks.txt.
    Machine(&'static str),
    /// A person does it, or it needs a driver, a GPU, SELinux or a daemon of NVIDIA's that no test has.
    Person(&'static str),
}

use Shown::{Machine, Person, Test};

const FIXES: &[(Finding, Shown)] = &[
    (Finding::NoDriver, Person("installs a driver")),
    (Finding::NvmlSilent, Person("restarts the machine")),
    (Finding::DeviceLost, Person("looks for the fault of the GPU")),
    (Finding::LibrariesMissing, Person("installs libraries of the driver")),
    (Finding::LibraryMissing, Person("installs a library of the driver")),
    (Finding::FilesLost, Person("installs files of the driver")),
    (Finding::NoGpu, Person("looks for the fault of the GPU")),
    (Finding::VersionsDiffer, Person("restarts the machine")),
    (Finding::MigEmpty, Person("chooses the instances of a GPU")),
    (Finding::MigPending, Person("decides when the GPU is reset")),
    (
        Finding::MigNotRestored,
        Test("mig/changes.rs::a_restore_that_fails_is_a_result_of_doctor"),
    ),
    (Finding::HostWarning, Person("corrects what the message names")),
    (Finding::ModuleNotLoaded, Person("modprobe needs the driver")),
    (
        Finding::NodeMissing,
        Test("cli/doctor.rs::fix_makes_nodes_and_the_specification"),
    ),
    (
        Finding::NodeWrong,
        Test("cli/doctor/starts.rs::a_node_with_wrong_numbers"),
    ),
    (
        Finding::LinkMissing,
        Machine("reload: after the fix, tranche doctor finds no missing links"),
    ),
    (
        Finding::LinkBlocked,
        Person("the same command, after what is in the way was removed"),
    ),
    (Finding::NodesOpen, Person("decides whether users may pass the ledger")),
    (
        Finding::AccessNotInForce,
        Test("cli/protect.rs::protection_is_one_file_and_in_force_when_the_driver_says_so"),
    ),
    (Finding::AccessOfSeats, Person("removes a rule of udev")),
    (Finding::AccessByDocker, Person("decides who may use docker")),
    (Finding::AccessOfService, Person("decides who monitors GPUs")),
    (Finding::AccessWithoutClaim, Person("ends the process")),
    (
        Finding::LibrariesMixed,
        Test("cli/doctor/faults.rs::a_libcuda_of_another_driver"),
    ),
    (
        Finding::FabricManagerStopped,
        Person("systemctl needs the driver's daemon"),
    ),
    (Finding::ImexChannelMissing, Person("sets a parameter of the module")),
    (
        Finding::ImexDaemonStopped,
        Person("systemctl needs the driver's daemon"),
    ),
    (
        Finding::SpecMissing,
        Test("cli/doctor.rs::fix_makes_nodes_and_the_specification"),
    ),
    (
        Finding::SpecInvalid,
        Person("writes or removes a file of another program"),
    ),
    (Finding::SpecMisnamed, Person("chooses a name")),
    (Finding::SpecConflict, Person("decides which file stays")),
    (Finding::SpecHidden, Person("decides which file stays")),
    (
        Finding::SpecFilesMissing,
        Test("cli/doctor/starts.rs::a_file_that_a_refreshed_specification_names"),
    ),
    (
        Finding::SpecHookMissing,
        Test("cli/doctor/starts.rs::a_hook_that_is_gone"),
    ),
    (Finding::SpecOtherHookMissing, Person("installs another program")),
    (
        Finding::SpecPrivate,
        Test("cli/doctor/starts.rs::a_specification_that_users_cannot_read"),
    ),
    (
        Finding::SpecStale,
        Test("cli/doctor/starts.rs::a_driver_update_is_one_result"),
    ),
    (
        Finding::RefreshDisabled,
        Machine("reload: after the fix, tranche doctor finds the units enabled"),
    ),
    (
        Finding::OthersCanWrite,
        Test("cli/doctor/rights.rs::what_root_s_engines_trust_and_others_can_write"),
    ),
    (
        Finding::ProgramNotExecutable,
        Test("cli/doctor/rights.rs::a_hook_that_no_engine_can_execute"),
    ),
    (
        Finding::NoRoom,
        Test("cli/doctor/faults.rs::a_state_directory_without_room"),
    ),
    (Finding::HookNotStatic, Person("installs a static program")),
    (
        Finding::StateUnsafe,
        Test("cli/doctor/starts.rs::a_state_directory_that_others_may_write"),
    ),
    (Finding::HostFileOld, Test("cli/doctor/starts.rs::a_damaged_host_file")),
    (
        Finding::HostFileRefused,
        Person("decides whether the file can be trusted"),
    ),
    (Finding::LowLevelMissing, Person("installs runc or crun")),
    (Finding::PolicyInvalid, Person("corrects the policy")),
    (Finding::PolicyUnfit, Person("corrects the policy")),
    (Finding::PolicyDeviceMissing, Person("corrects the policy")),
    (
        Finding::PolicyEmpty,
        Test("cli/doctor/faults.rs::a_policy_that_gives_nothing"),
    ),
    (Finding::PolicyWarning, Person("corrects the policy")),
    (
        Finding::EngineWithoutCdi,
        Test("cli/doctor/engine_files.rs::cdi_that_is_off_in_docker"),
    ),
    (
        Finding::EngineOutdated,
        Person("gives the options of a specification again"),
    ),
    (
        Finding::EngineCdiOff,
        Test("cli/doctor/engine_files.rs::cdi_that_is_off_in_docker"),
    ),
    (Finding::EngineConfigInvalid, Person("corrects the file of the engine")),
    (Finding::EngineDirectories, Person("corrects the file of the engine")),
    (Finding::EngineInSnap, Person("installs another package of docker")),
    (
        Finding::KnownFault,
        Person("decides when the driver or an engine is updated"),
    ),
    (
        Finding::NvidiaHook,
        Test("cli/doctor/engine_files.rs::the_hook_of_nvidia_s_toolkit"),
    ),
    (
        Finding::EngineRuntimeMissing,
        Test("cli/doctor/engine_files.rs::a_runtime_that_nvidia_s_toolkit_left"),
    ),
    (Finding::SelinuxNodes, Person("setsebool needs SELinux")),
    (Finding::SelinuxNodeLabels, Person("restorecon needs SELinux")),
    (Finding::SelinuxModule, Person("semodule needs SELinux")),
    (Finding::SelinuxPipeLabels, Person("restorecon needs SELinux")),
    (Finding::ApparmorConfines, Person("changes a profile")),
    (
        Finding::NamespacesForbidden,
        Person("decides whether users may make namespaces"),
    ),
    (Finding::IdMapMissing, Person("installs a package")),
    (
        Finding::IdMapPowerless,
        Test("cli/doctor/rights.rs::a_newuidmap_without_its_right"),
    ),
    (
        Finding::UserWithoutIds,
        Person("usermod changes the users of the machine"),
    ),
    (Finding::LedgerDamaged, Person("knows when no container holds a share")),
    (Finding::LedgerUnusable, Person("corrects what the message names")),
    (Finding::HeldBeyondPolicy, Person("decides which container ends")),
    (Finding::UseWithoutClaim, Person("decides which process ends")),
    (Finding::UseBeyondPromise, Person("decides what a container gets")),
    (Finding::UseUnknown, Person("corrects what the message names")),
    (
        Finding::ComputeModeChanged,
        Person("decides whether the mode is needed; nvidia-smi needs a GPU"),
    ),
    (Finding::DeviceOutOfService, Person("knows when the device works again")),
    (Finding::OutOfServiceDamaged, Person("knows which devices were drained")),
    (
        Finding::CalendarUnusable,
        Person("knows what was reserved, and sets the clock"),
    ),
    (Finding::TurnsNotTried, Person("tries it on a GPU")),
    (Finding::WorkSuspended, Person("waits for the end of the holders")),
    (Finding::SuspendedByOtherDriver, Person("ends the holders")),
    (
        Finding::BrokerStopped,
        Test("cli/doctor/starts.rs::shares_under_mps_without_a_broker"),
    ),
    (Finding::BrokerRefuses, Person("starts the broker again")),
    (
        Finding::BrokerPrivate,
        Test("cli/doctor/rights.rs::a_socket_of_the_broker_that_only_root_can_use"),
    ),
    (Finding::StatusDamaged, Person("removes the file")),
    (Finding::MpsFailed, Person("looks for the fault of the daemon")),
    (Finding::MpsServerFailed, Person("looks for the fault of the driver")),
    (Finding::MpsEarlierVersion, Person("decides when the containers end")),
    (Finding::MpsForeign, Person("decides which daemon stays")),
    (Finding::MpsStopped, Person("starts the own daemon")),
    (Finding::MpsUnknown, Person("decides which daemon stays")),
    (
        Finding::MpsLeftOver,
        Test("cli/doctor/engine_files.rs::what_is_left_of_an_mps_daemon"),
    ),
];

fn source(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn each_fix_is_run_or_listed() {
    let listed: Vec<Finding> = FIXES.iter().map(|(finding, _)| *finding).collect();
    assert_eq!(listed, Finding::ALL, "one row for each finding, in its order");
    let checks = source("vm/checks.txt");
    for (finding, shown) in FIXES {
        match shown {
            Test(test) => {
                let (file, name) = test.split_once("::").unwrap();
                assert!(
                    source(file).contains(&format!("\nfn {name}()")),
                    "{finding}: {test}: not found"
                );
            }
            Machine(line) => assert!(
                checks.lines().any(|one| one.starts_with(line)),
                "{finding}: {line}: not found"
            ),
            Person(what) => assert!(what.contains(' '), "{finding}: {what}"),
        }
    }
}

#[test]
fn each_finding_is_provoked_by_a_test() {
    let tests = [
        include_str!("../tests.rs"),
        include_str!("access.rs"),
        include_str!("causes.rs"),
        include_str!("engines.rs"),
        include_str!("faults_of_users.rs"),
        include_str!("rootless.rs"),
        include_str!("selinux.rs"),
    ]
    .concat();
    let missing: BTreeSet<String> = Finding::ALL
        .iter()
        .map(|finding| format!("Finding::{finding:?},"))
        .filter(|name| !tests.contains(name.as_str()))
        .collect();
    assert_eq!(missing, BTreeSet::new());
}
