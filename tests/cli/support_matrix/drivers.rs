//! Which versions of NVIDIA's programs and libraries were run, and what was seen on a GPU.

/// The section of the page.
pub(super) const DRIVERS: &str = "\
## Drivers

NVIDIA's programs and libraries are packages of Debian, which the tests fetch. Its MPS control daemon, `libcuda` and
`nvidia-smi` run without a GPU, up to the place where they look for one.

| driver | its MPS daemon | its client, through a share | its files in containers of Debian 11, 12 and 13 | on a GPU |
|---|---|---|---|---|
| 470.256.02 | `make test-real-mps` | `make test-real-mps` | `make test-real-driver` | – |
| 535.261.03 | `make test-real-mps` | `make test-real-mps` | `make test-real-driver` | – |
| 550.163.01 | `make test-real-mps` | `make test-real-mps` | `make test-real-driver` | – |
| 555.58.02 | `make test-real-mps` | `make test-real-mps` | – | – |
| 580.159.04 | its answers were recorded: `tests/mps/580.txt` | by hand | – | by hand, once |

`make test-real-mps` is a part of `make test` where Debian's component non-free can be reached. `make test-real-driver` runs before
a release.

Seen once on a GPU, by hand: an H200 with 141 GB in a virtual machine with Ubuntu 24.04 and cgroup v2, driver 580.159.04,
compute mode DEFAULT, without a container engine (`tranche run`). The host is `tests/hosts/h200-in-vm`.

- Discovery, `plan`, `cdi refresh`, `doctor`, `status` and `top`. All files, nodes and properties of the GPU in the inventory are
  those of the test host.
- Shares by time-slicing, and by MPS with 60 % and 8 GiB beside 25 % and 2 GiB: a process has 78 and 32 of 132 multiprocessors,
  and its allocations fail at 7872 MiB and 1856 MiB. `cuMemGetInfo` shows the limit, `cuDeviceTotalMem` the whole device.
- Processes of two users work at the same time under one daemon (`users: many`). Under a daemon for one user at a time, the
  second user's `cuInit` took 6.6 s and 13.0 s: until the processes of the first user had ended.
- The directory that containers get, with `control` alone, mounted read-only: users 0 and 1000, and root of a user namespace. A
  process without variables of CUDA finds it in `/tmp/nvidia-mps` and has the daemon's default limits.
- `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` limits by index and by UUID, and never above the server's limit. **An entry for a device that
  does not exist voids every limit of memory of that process**: it allocated 12 GiB in a share of 2 GiB. This is why the grade is
  advisory, or soft with EXCLUSIVE_PROCESS.
- A connection to the daemon that says nothing: a start beside it took 1.0 s, and a neighbour's work went on. Before the broker
  shut such connections down, the start took 24.5 s and failed, and the daemon was replaced.
- One process in which the library stays loaded sees what others do: 1.7 GB and a process while that process ran, and neither before
  nor after. The stand-in for the library reads its files at each call for that reason.
- 130 connections of one holder, which fill the daemon's queue and say nothing: a start beside them took 3.0 s, under the same
  daemon.
- A connection that says that it sends commands, and sends none: a start beside it took 0.6 s. Before, commands ended without an
  answer and without an error.
- By `control` alone, root on the host, in no user namespace, cannot end the daemon and cannot change its defaults, but it changed
  the limits of a running server, ended a client of another user, and ended the server. Another user cannot. Under a daemon for one
  user at a time, the server runs as its user, who changed its limits.
- A killed daemon: its clients fail with error 806, the broker starts another one with the same limits, and the next process works.
  In compute mode DEFAULT, a process that starts before that runs without MPS and without a limit.
- `terminate_client` ends a client's work with error 810.

Never seen on a GPU: containers, MIG, EXCLUSIVE_PROCESS, `interval`, limits of a cgroup's memory (driver 615), idle limits, any
other GPU, and drivers other than 580.159.04.
";
