//! What was tried with which program. docs/support.md is written from this file.
//!
//! A test is `FILE::NAME` below tests/, and a check of the booted machine is `vm: NAME` as in tests/vm/checks.txt.

use super::Tried::{self, ByHand, Documented, OffersNone, Partly, Refused, Tested, Untried};

/// What is tried: a heading and its explanation.
pub(super) const COLUMNS: [(&str, &str); 7] = [
    ("device", "a GPU or MIG device by its CDI name"),
    (
        "share",
        "a share under time-slicing, or a dedicated GPU, by its CDI name: taken, held, refused and released",
    ),
    ("MPS share", "a share under MPS, with a fake daemon of MPS"),
    (
        "runtime",
        "`NVIDIA_VISIBLE_DEVICES`, annotations and sizes, by `tranche-runtime` in the place of the low-level runtime",
    ),
    (
        "hooks.d",
        "the same by the precreate hook, which podman reads from a directory of OCI hooks",
    ),
    ("verify", "`tranche verify` of a container"),
    (
        "export",
        "`tranche export`, for programs that read no CDI specification",
    ),
];

/// A program that starts containers.
pub(super) struct Row {
    pub(super) program: &'static str,
    /// A test names the program by one of these words in its file.
    pub(super) marks: &'static [&'static str],
    pub(super) tried: [Tried; COLUMNS.len()],
}

const READS_CDI: Tried = OffersNone("not needed: it reads CDI specifications");
const NO_HOOKS_D: Tried = OffersNone("podman alone has this stage");
const NO_CDI: Tried = OffersNone("it reads no CDI specification");
const NO_RUNTIME: Tried = OffersNone("it runs no OCI runtime");
const NO_VERIFY: Tried = OffersNone("`tranche verify` asks podman, docker and nerdctl");

pub(super) const ROWS: [Row; 16] = [
    Row {
        program: "podman of root, over crun",
        marks: &["PodmanCrun", "Engine::ALL"],
        tried: [
            Tested(&[
                "engines/generated.rs::a_container_has_the_nodes_of_its_devices_and_no_other",
                "engines/loader_engines.rs::a_program_finds_the_driver",
                "vm: driver: a generated specification: podman with crun",
            ]),
            Tested(&[
                "engines/shares.rs::a_share_is_held_by_one_container",
                "engines/equal_shares.rs::any_is_a_free_replica_and_the_fifth_container_of_four_is_refused",
                "engines/equal_shares.rs::a_dedicated_gpu_is_for_one_container_at_a_time",
            ]),
            Tested(&[
                "engines/mps.rs::unequal_shares_run_at_once_with_one_daemon_and_the_last_stop_puts_the_device_back",
                "engines/shares.rs::an_mps_share_needs_its_daemon_and_no_other_device",
            ]),
            Tested(&["engines/requests.rs::of_podman_with_the_runtime"]),
            Tested(&[
                "engines/requests.rs::of_podman_with_the_precreate_hook",
                "engines/requests.rs::of_podman_that_is_configured",
            ]),
            Tested(&["verify/container.rs::a_share_is_as_promised_and_one_without_its_limits_is_not"]),
            READS_CDI,
        ],
    },
    Row {
        program: "podman of root, over runc",
        marks: &["PodmanRunc", "Engine::ALL"],
        tried: [
            Tested(&[
                "engines/generated.rs::a_container_has_the_nodes_of_its_devices_and_no_other",
                "engines/loader_engines.rs::a_program_finds_the_driver",
                "vm: driver: a generated specification: podman with runc",
            ]),
            Tested(&[
                "engines/shares.rs::a_share_is_held_by_one_container",
                "engines/equal_shares.rs::any_is_a_free_replica_and_the_fifth_container_of_four_is_refused",
                "engines/equal_shares.rs::a_dedicated_gpu_is_for_one_container_at_a_time",
            ]),
            Tested(&[
                "engines/mps.rs::unequal_shares_run_at_once_with_one_daemon_and_the_last_stop_puts_the_device_back",
                "engines/mps.rs::a_daemon_that_fails_leads_to_no_container_without_limits",
            ]),
            Tested(&["engines/requests.rs::of_podman_with_the_runtime"]),
            Tested(&["engines/requests.rs::of_podman_with_the_precreate_hook"]),
            Tested(&["verify/container.rs::a_share_is_as_promised_and_one_without_its_limits_is_not"]),
            READS_CDI,
        ],
    },
    Row {
        program: "podman of a user, over crun",
        marks: &["RootlessCrun", "Engine::ALL"],
        tried: [
            Tested(&[
                "engines/generated.rs::a_container_has_the_nodes_of_its_devices_and_no_other",
                "vm: driver: a generated specification: podman of a user with crun",
            ]),
            Tested(&[
                "engines/rootless_shares.rs::a_container_of_a_users_engine_holds_a_share_until_it_is_removed",
                "vm: rootless: a container of a user holds a share: crun",
            ]),
            Refused(&[
                "engines/rootless_shares.rs::a_container_of_a_users_engine_holds_a_share_until_it_is_removed",
                "vm: rootless: a share under MPS is refused: crun",
            ]),
            Partly(
                &["engines/runtime.rs::a_container_without_a_request_runs_as_before"],
                "containers that request nothing; a request in the user namespace of a user without podman \
                 (tests/runtime/rootless.rs)",
            ),
            Untried,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "podman of a user, over runc",
        marks: &["RootlessRunc", "Engine::ALL"],
        tried: [
            Tested(&[
                "engines/generated.rs::a_container_has_the_nodes_of_its_devices_and_no_other",
                "vm: driver: a generated specification: podman of a user with runc",
            ]),
            Tested(&[
                "engines/rootless_shares.rs::a_container_of_a_users_engine_holds_a_share_until_it_is_removed",
                "vm: rootless: a container of a user holds a share: runc",
            ]),
            Refused(&[
                "engines/rootless_shares.rs::a_container_of_a_users_engine_holds_a_share_until_it_is_removed",
                "vm: rootless: a share under MPS is refused: runc",
            ]),
            Partly(
                &["engines/runtime.rs::a_container_without_a_request_runs_as_before"],
                "containers that request nothing",
            ),
            Untried,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "podman quadlet",
        marks: &[],
        tried: [
            Documented("podman-systemd.unit(5), `AddDevice`, of which the generator of podman 5.8 makes `--device`"),
            Documented("podman-systemd.unit(5), `AddDevice`"),
            Documented("podman-systemd.unit(5), `AddDevice`"),
            Untried,
            Untried,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "docker",
        marks: &["Way::Docker"],
        tried: [
            ByHand("docker 29; docker 20.10 and 24 do not read CDI"),
            ByHand("docker 29"),
            Partly(
                &["engines/requests.rs::of_docker_with_the_runtime"],
                "by the runtime, not by a CDI name",
            ),
            Tested(&[
                "engines/requests.rs::of_docker_with_the_runtime",
                "engines/requests.rs::of_docker_with_the_default_runtime",
                "engines/requests.rs::of_docker_by_gpus",
            ]),
            NO_HOOKS_D,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "containerd, by ctr",
        marks: &["Way::Ctr"],
        tried: [
            ByHand("containerd 2.4, by ctr and by the CRI; 1.6 does not read CDI"),
            ByHand("containerd 2.4"),
            Partly(
                &["engines/requests.rs::of_containerd"],
                "by the runtime, not by a CDI name",
            ),
            Tested(&["engines/requests.rs::of_containerd"]),
            NO_HOOKS_D,
            NO_VERIFY,
            READS_CDI,
        ],
    },
    Row {
        program: "CRI-O",
        marks: &["crio"],
        tried: [
            ByHand("CRI-O 1.37"),
            ByHand("CRI-O 1.37"),
            Untried,
            Partly(
                &["runtime/configs.rs::each_configuration_changes_as_it_requests"],
                "with configurations that CRI-O 1.33 wrote; CRI-O 1.33 itself by hand, over runc",
            ),
            NO_HOOKS_D,
            NO_VERIFY,
            READS_CDI,
        ],
    },
    Row {
        program: "crun or runc alone",
        marks: &["PodmanCrun, Engine::PodmanRunc"],
        tried: [
            Partly(
                &["engines/handwritten.rs::the_runtimes_alone_run_the_hook"],
                "they read no CDI specification; the hook and a node in `config.json`",
            ),
            Untried,
            Untried,
            Untried,
            NO_HOOKS_D,
            NO_VERIFY,
            Untried,
        ],
    },
    Row {
        program: "a program without a container",
        marks: &["`tranche run`"],
        tried: [
            OffersNone("it has the devices of the host"),
            Tested(&[
                "verify/run.rs::a_share_is_held_while_its_program_runs",
                "verify/run.rs::a_share_is_held_until_the_last_process_of_the_program_ends",
            ]),
            Tested(&["verify/run.rs::a_program_has_its_share_and_no_other_limits"]),
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            OffersNone("`tranche run` holds the share"),
        ],
    },
    Row {
        program: "bubblewrap",
        marks: &["\"bwrap\""],
        tried: [
            NO_CDI,
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Tested(&["cli/export.rs::bubblewrap_gives_what_is_exported"]),
        ],
    },
    Row {
        program: "systemd-nspawn",
        marks: &["nspawn"],
        tried: [
            NO_CDI,
            Untried,
            Partly(
                &["cli/export.rs::a_share_brings_its_limits_and_its_daemon"],
                "the printed flags",
            ),
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Tested(&["cli/export.rs::nspawn_gives_what_is_exported"]),
        ],
    },
    Row {
        program: "LXC",
        marks: &["\"lxc\""],
        tried: [
            NO_CDI,
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Tested(&["cli/export.rs::lxc_gives_what_is_exported"]),
        ],
    },
    Row {
        program: "Incus",
        marks: &[],
        tried: [
            Untried,
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Documented("the lines for LXC, as `raw.lxc`"),
        ],
    },
    Row {
        program: "Apptainer, Singularity",
        marks: &[],
        tried: [
            Untried,
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            ByHand(
                "Apptainer 1.4.5 as root on a directory: with `--contain` a container sees its GPU or share alone. Singularity: not run",
            ),
        ],
    },
    Row {
        program: "nerdctl, Nomad",
        marks: &[],
        tried: [
            Documented("nerdctl reads CDI specifications from 2.1 on; Nomad needs the runtime of docker"),
            Untried,
            Untried,
            Documented("Nomad's docker driver, `runtime`"),
            NO_HOOKS_D,
            Untried,
            OffersNone("not needed: nerdctl reads CDI specifications, and Nomad uses the runtime"),
        ],
    },
];
