//! What was tried with which program. The matrix of docs/reference/support.md, and docs/maintaining/tested.md, are
//! written from this file.
//!
//! A test is `FILE::NAME` below tests/, and a check of the booted machine is `vm: NAME` as in tests/vm/checks.txt.

use super::Tried::{self, ByHand, Documented, OffersNone, Partly, Refused, Tested, Untried};

/// What is tried: a heading and its explanation.
pub(super) const COLUMNS: [(&str, &str); 7] = [
    ("device", "a GPU or MIG device by its CDI name"),
    (
        "share",
        "a share under time-slicing, or a dedicated GPU: taken, held, refused and released",
    ),
    ("MPS share", "a share under MPS, with a fake daemon of MPS"),
    ("runtime", "variables, annotations and sizes, by `tranche-runtime`"),
    ("hooks.d", "the same by podman's precreate hook"),
    ("verify", "`tranche verify`"),
    ("export", "`tranche export`"),
];

/// A program that starts containers.
pub(super) struct Row {
    pub(super) program: &'static str,
    /// A test names the program by one of these words in its file.
    pub(super) marks: &'static [&'static str],
    /// The packages of Debian that it consists of.
    pub(super) packages: &'static [&'static str],
    pub(super) tried: [Tried; COLUMNS.len()],
}

/// An engine, its package in Debian, and the versions that were tried by hand.
pub(super) const BY_HAND: [(&str, &str, &str); 6] = [
    ("podman", "podman", "–"),
    ("docker", "docker.io", "29"),
    ("containerd", "containerd", "2.4"),
    ("CRI-O", "cri-o", "1.33, 1.37"),
    ("crun", "crun", "–"),
    ("runc", "runc", "–"),
];

/// What a run writes down, and the package that it depends on.
pub(super) const FACTS: [(&str, &str); 4] = [
    ("docker", "docker.io"),
    ("ctr", "containerd"),
    ("containerd by the CRI", "containerd"),
    ("docker of a user", "docker.io"),
];

const READS_CDI: Tried = OffersNone("it reads CDI specifications");
const NO_HOOKS_D: Tried = OffersNone("podman alone has this stage");
const NO_CDI: Tried = OffersNone("it reads no CDI specification");
const NO_RUNTIME: Tried = OffersNone("it runs no OCI runtime");
const NO_VERIFY: Tried = OffersNone("`tranche verify` asks podman, docker and nerdctl");

pub(super) const ROWS: [Row; 20] = [
    Row {
        program: "podman of root, over crun",
        marks: &["PodmanCrun", "Engine::ALL"],
        packages: &["podman", "crun"],
        tried: [
            Tested(&[
                "engines/generated.rs::a_container_has_the_nodes_of_its_devices_and_no_other",
                "engines/as_installed.rs::podman_gives_a_gpu_without_options",
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
        packages: &["podman", "runc"],
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
        packages: &["podman", "crun"],
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
        packages: &["podman", "runc"],
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
        marks: &["/usr/libexec/podman/quadlet"],
        packages: &["podman", "crun", "runc"],
        tried: [
            Untried,
            Tested(&["engines/quadlet.rs::a_unit_gets_its_share_and_a_second_one_is_refused"]),
            Tested(&["engines/quadlet.rs::a_unit_gets_its_share_and_a_second_one_is_refused"]),
            Untried,
            Untried,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "docker",
        marks: &["Way::Docker"],
        packages: &["docker.io", "runc"],
        tried: [
            Partly(
                &["engines/cdi_names.rs::of_docker"],
                "docker before 25 does not read CDI; docker 29 by hand",
            ),
            Partly(
                &["engines/cdi_names.rs::of_docker"],
                "docker before 25 does not read CDI; docker 29 by hand",
            ),
            Partly(
                &[
                    "engines/cdi_names.rs::of_docker",
                    "engines/requests.rs::of_docker_with_the_runtime",
                ],
                "docker before 25 only by the runtime",
            ),
            Tested(&[
                "engines/requests.rs::of_docker_with_the_runtime",
                "engines/requests.rs::of_docker_with_the_default_runtime",
                "engines/requests.rs::of_docker_by_gpus",
                "engines/compose.rs::a_service_of_a_swarm_gets_the_device_that_it_was_assigned",
            ]),
            NO_HOOKS_D,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "docker of a user",
        marks: &["dockerd-rootless.sh"],
        packages: &["docker.io", "rootlesskit", "runc"],
        tried: [
            Partly(
                &["engines/docker_rootless.rs::docker_of_a_user_gives_devices_and_shares"],
                "docker before 25 does not read CDI",
            ),
            Partly(
                &["engines/docker_rootless.rs::docker_of_a_user_gives_devices_and_shares"],
                "docker before 25 does not read CDI",
            ),
            Refused(&["engines/docker_rootless.rs::docker_of_a_user_gives_devices_and_shares"]),
            Partly(
                &["engines/docker_rootless.rs::docker_of_a_user_gives_devices_and_shares"],
                "whole devices; shares are refused with the way that works",
            ),
            NO_HOOKS_D,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "docker compose",
        marks: &["Way::Docker"],
        packages: &["docker-compose", "docker.io"],
        tried: [
            Partly(
                &["engines/compose.rs::each_form_of_a_compose_file_gives_its_devices_or_is_refused"],
                "docker before 25 does not read CDI",
            ),
            Untried,
            Untried,
            Tested(&["engines/compose.rs::each_form_of_a_compose_file_gives_its_devices_or_is_refused"]),
            NO_HOOKS_D,
            Untried,
            READS_CDI,
        ],
    },
    Row {
        program: "containerd, by ctr",
        marks: &["Way::Ctr"],
        packages: &["containerd", "runc"],
        tried: [
            Partly(
                &["engines/cdi_names.rs::of_ctr"],
                "ctr before 2.0 takes no CDI names; 2.4 by hand",
            ),
            Partly(
                &["engines/cdi_names.rs::of_ctr"],
                "ctr before 2.0 takes no CDI names; 2.4 by hand",
            ),
            Partly(
                &["engines/cdi_names.rs::of_ctr", "engines/requests.rs::of_containerd"],
                "ctr before 2.0 only by the runtime",
            ),
            Tested(&["engines/requests.rs::of_containerd"]),
            NO_HOOKS_D,
            NO_VERIFY,
            READS_CDI,
        ],
    },
    Row {
        program: "containerd, by the CRI",
        marks: &["Way::Cri"],
        packages: &["containerd", "runc"],
        tried: [
            Partly(
                &["engines/cdi_names.rs::of_containerd_by_the_cri"],
                "containerd before 1.7 does not read CDI; 2.4 by hand",
            ),
            Partly(
                &["engines/cdi_names.rs::of_containerd_by_the_cri"],
                "containerd before 1.7 does not read CDI; 2.4 by hand",
            ),
            Partly(
                &[
                    "engines/cdi_names.rs::of_containerd_by_the_cri",
                    "engines/requests.rs::of_containerd_by_the_cri",
                ],
                "containerd before 1.7 only by the runtime",
            ),
            Tested(&["engines/requests.rs::of_containerd_by_the_cri"]),
            NO_HOOKS_D,
            NO_VERIFY,
            READS_CDI,
        ],
    },
    Row {
        program: "CRI-O",
        marks: &["crio"],
        packages: &[],
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
        program: "buildah",
        marks: &["\"buildah\""],
        packages: &["buildah", "crun", "runc"],
        tried: [
            Refused(&["engines/buildah.rs::a_cdi_name_is_refused_with_cgroups_of_version_1"]),
            Untried,
            Untried,
            Partly(
                &["engines/buildah.rs::the_runtime_gives_devices_and_shares_to_steps_of_a_build"],
                "`buildah run` and `buildah build` with a variable",
            ),
            NO_HOOKS_D,
            NO_VERIFY,
            READS_CDI,
        ],
    },
    Row {
        program: "crun or runc alone",
        marks: &["PodmanCrun, Engine::PodmanRunc"],
        packages: &["crun", "runc"],
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
        packages: &[],
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
        packages: &["bubblewrap"],
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
        packages: &["systemd-container"],
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
        packages: &["lxc"],
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
        marks: &["incus"],
        packages: &["incus"],
        tried: [
            Refused(&["engines/incus.rs::a_cdi_name_is_refused"]),
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Tested(&["engines/incus.rs::a_container_sees_what_is_exported"]),
        ],
    },
    Row {
        program: "Apptainer, Singularity",
        marks: &["\"apptainer\""],
        packages: &["apptainer"],
        tried: [
            Refused(&["engines/apptainer.rs::a_container_of_a_user_sees_what_is_exported"]),
            Untried,
            Untried,
            NO_RUNTIME,
            NO_RUNTIME,
            NO_VERIFY,
            Partly(
                &["engines/apptainer.rs::a_container_of_a_user_sees_what_is_exported"],
                "Apptainer; Singularity was not run",
            ),
        ],
    },
    Row {
        program: "nerdctl, Nomad",
        marks: &[],
        packages: &[],
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
