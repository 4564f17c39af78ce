//! Commands to a daemon without a server, with good and absurd values. One daemon gets all of a group, in order.

use crate::bed::Bed;
use crate::compare::Transcript;

/// About the percentage of threads.
const PERCENTAGES: &str = "\
get_default_active_thread_percentage
set_default_active_thread_percentage 50
set_default_active_thread_percentage 0
set_default_active_thread_percentage 101
set_default_active_thread_percentage -5
set_default_active_thread_percentage -0
set_default_active_thread_percentage many
set_default_active_thread_percentage
set_default_active_thread_percentage 33.3
set_default_active_thread_percentage 33.39
set_default_active_thread_percentage 99.99
set_default_active_thread_percentage 1e1
set_default_active_thread_percentage 1e-3
set_default_active_thread_percentage 0x10
set_default_active_thread_percentage nan
set_default_active_thread_percentage inf
set_default_active_thread_percentage 12%
set_default_active_thread_percentage 12,5
set_default_active_thread_percentage 40 60
get_default_active_thread_percentage x";

/// About memory. Each pair sets a limit and asks for it.
const SIZES: [&str; 24] = [
    "2G",
    "2g",
    "2GB",
    "2048M",
    "1536M",
    "1023M",
    "1m",
    "500",
    "2K",
    "2T",
    "1.5G",
    "5.9G",
    "0",
    "0M",
    "-1M",
    "-1G",
    "+5M",
    "0x10M",
    "1e3M",
    "99999999M",
    "18446744073709551616M",
    "17179869184G",
    "G",
    "half",
];

/// The names of devices, in commands about memory.
const DEVICES: [&str; 15] = [
    "1",
    "31",
    "32",
    "99",
    "-1",
    "2147483648",
    "4294967296",
    "1x",
    "x1",
    "1,2",
    "0x1",
    "07",
    "GPU-a",
    "GPU-00000000-0000-0000-0000-000000000000",
    "MIG-a",
];

/// What has no server.
const SERVERS: &str = "\
get_server_list
get_server_list x
get_server_status
get_server_status 1
get_server_status x
get_server_status 99999999999
get_client_list
get_client_list 1
get_client_list x
get_device_client_list
get_device_client_list 1
get_active_thread_percentage
get_active_thread_percentage 1
set_active_thread_percentage 1 50
set_active_thread_percentage 1
get_device_pinned_mem_limit 1 0
get_device_pinned_mem_limit
set_device_pinned_mem_limit 1 0 1G
set_device_pinned_mem_limit 1
shutdown_server
shutdown_server 1
shutdown_server 1 -f
shutdown_server -1
terminate_client
terminate_client 1 2
terminate_client 1 x
ps
ps 1
ps -p
ps -p 1
start_server
start_server 0
start_server -uid
start_server -uid x";

/// Priorities of clients.
const PRIORITIES: &str = "\
get_default_client_priority
set_default_client_priority 1
get_default_client_priority
set_default_client_priority 2
set_default_client_priority -1
set_default_client_priority 1.5
get_default_client_priority
set_default_client_priority x
get_default_client_priority
set_default_client_priority
set_default_client_priority 4294967296";

/// What no version knows, and spellings.
const UNKNOWN: &str = "\
foo
foo bar
  foo
GET_SERVER_LIST
get_server_listx
  get_server_list
help
?
-v
\"
ä
sm_partition
lspart
device_query
set_client_priority 1 1";

/// All commands as one list; each answer is a situation of its own.
fn all() -> Vec<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let asked = |device: &str, size: &str| {
        [
            format!("set_default_device_pinned_mem_limit {device} {size}"),
            format!("get_default_device_pinned_mem_limit {device}"),
            "get_default_device_pinned_mem_limit 0".to_owned(),
        ]
    };
    let mut all = lines(PERCENTAGES);
    all.extend(lines(
        "get_default_device_pinned_mem_limit 0\nget_default_device_pinned_mem_limit",
    ));
    all.extend(SIZES.iter().flat_map(|size| asked("0", size)[..2].to_vec()));
    all.push("set_default_device_pinned_mem_limit 0 3G".to_owned());
    all.extend(DEVICES.iter().flat_map(|device| asked(device, "1G")));
    all.push("set_default_device_pinned_mem_limit 0".to_owned());
    for group in [SERVERS, PRIORITIES, UNKNOWN] {
        all.extend(lines(group));
    }
    all.push(String::new());
    all.push("x".repeat(300));
    all
}

/// Asks one daemon for all.
pub(crate) fn run(bed: &Bed, transcript: &mut Transcript) {
    bed.clear();
    let _daemon = bed.start(&["-f"]).unwrap();
    for (at, command) in all().iter().enumerate() {
        transcript.note(&format!("command {at:03}: {command}"), vec![bed.say(command).line()]);
    }
}
