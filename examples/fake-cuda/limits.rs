//! What a process gets: the devices that it sees, and the limits of MPS.
//!
//! The rules are those of the real library, as far as they are documented or were measured (CUDA MPS documentation,
//! "Environment Variables" and "Client Attach"):
//! - A process that cannot connect to a daemon runs without MPS and without limits, and prints nothing.
//! - A client can only lower the defaults of the daemon.
//! - The number of SMs is the percentage of the device's, rounded down to a step of the hardware.
//! - A limit of memory lowers what is free and not what the device has in all.
//! - If an entry of the limits of memory names a device that the process does not see, there is no limit of memory at
//!   all, and the daemon's does not apply either.

use crate::config::{Config, Gpu};
use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// SMs that the hardware cannot divide: two share a TPC.
const STEP: u32 = 2;

/// The UUID of an instance that has no name.
const ANY_INSTANCE: &str = "MIG-";

/// What this process sees and may use.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    /// The positions of the devices that this process sees, by its own numbers.
    pub(crate) visible: Vec<usize>,
    /// Whether a daemon accepts its connection. It is closed at once: a client of the real one asks there for its
    /// server, and keeps the connection to that.
    is_client: bool,
}

/// Bytes of memory.
pub(crate) struct Memory {
    /// Free for this process.
    pub(crate) limited: u64,
    /// Free on the device.
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl World {
    /// Connects to the daemon, as cuInit does.
    pub(crate) fn new(mut config: Config) -> Self {
        let visible = match env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => {
                name_instances(&mut config.gpus, &list);
                visible(&config.gpus, &list)
            }
            Err(_) => (0..config.gpus.len()).collect(),
        };
        Self {
            config,
            visible,
            is_client: has_daemon(),
        }
    }

    /// The device with this number.
    pub(crate) fn gpu(&self, ordinal: i32) -> Option<&Gpu> {
        let position = self.visible.get(usize::try_from(ordinal).ok()?)?;
        self.config.gpus.get(*position)
    }

    /// Whether this process is a client of a daemon.
    pub(crate) fn is_client(&self) -> bool {
        self.is_client
    }

    /// The SMs that this process can use.
    pub(crate) fn sms(&self, gpu: &Gpu) -> u32 {
        if !self.is_client() {
            return gpu.sms;
        }
        let own = env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        let own = own.ok().and_then(|percent| percent.parse::<f64>().ok());
        let percent = own
            .unwrap_or(100.0)
            .min(f64::from(self.config.daemon.percent.unwrap_or(100)));
        let sms = (f64::from(gpu.sms) * percent / 100.0) as u32;
        match percent < 100.0 {
            true => (sms / STEP * STEP).max(STEP),
            false => gpu.sms,
        }
    }

    /// What a process that uses `used` bytes finds of memory, where others use `others`.
    pub(crate) fn memory(&self, ordinal: i32, gpu: &Gpu, used: u64, others: u64) -> Memory {
        let total = gpu.memory_mib << 20;
        let free = total.saturating_sub((gpu.used_mib << 20) + used + others);
        let limited = self
            .limit(ordinal)
            .map_or(free, |limit| free.min(limit.saturating_sub(used)));
        Memory { limited, free, total }
    }

    /// What is the same for all clients of this process's daemon; `None` without one.
    pub(crate) fn server(&self) -> Option<u64> {
        self.is_client.then_some(())?;
        std::fs::metadata(control()).ok().map(|socket| socket.ino())
    }

    /// The limit of memory in bytes, if there is one.
    fn limit(&self, ordinal: i32) -> Option<u64> {
        if !self.is_client() {
            return None;
        }
        let of_daemon = self.config.daemon.memory_mib.map(|mib| mib << 20);
        let Ok(entries) = env::var("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") else {
            return of_daemon;
        };
        let mut own = None;
        for entry in entries.split(',') {
            let (device, size) = entry.split_once('=')?;
            let named = match device.trim().parse::<i32>() {
                Ok(number) => self.gpu(number).map(|_| number),
                Err(_) => (0..).zip(&self.visible).find_map(|(number, position)| {
                    (self.config.gpus.get(*position)?.uuid == device.trim()).then_some(number)
                }),
            };
            // An entry for a device that is not visible voids all limits.
            if named? == ordinal {
                own = bytes(size.trim());
            }
        }
        match (own, of_daemon) {
            (Some(own), Some(of_daemon)) => Some(own.min(of_daemon)),
            (own, of_daemon) => own.or(of_daemon),
        }
    }
}

/// `8192M`, `8G`, `8192MB`.
fn bytes(size: &str) -> Option<u64> {
    let size = size.trim_end_matches('B');
    let (number, shift) = match (size.strip_suffix('M'), size.strip_suffix('G')) {
        (Some(number), _) => (number, 20),
        (_, Some(number)) => (number, 30),
        _ => (size, 0),
    };
    Some(number.parse::<u64>().ok()? << shift)
}

/// Adds the instances in a list that are like the one without a name. Each is a device of its own.
fn name_instances(gpus: &mut Vec<Gpu>, list: &str) {
    let Some(unnamed) = gpus.iter().position(|gpu| gpu.uuid == ANY_INSTANCE) else {
        return;
    };
    let unnamed = gpus.remove(unnamed);
    for uuid in list.split(',').filter(|entry| entry.starts_with(ANY_INSTANCE)) {
        let mut instance = unnamed.clone();
        instance.uuid = uuid.to_owned();
        if let Some(model) = &mut instance.model {
            model.state = model.state.with_extension(uuid);
        }
        gpus.push(instance);
    }
}

/// The positions of the devices in a list of numbers and UUIDs. An entry that is not a device ends the list (CUDA
/// programming guide, "CUDA_VISIBLE_DEVICES").
fn visible(gpus: &[Gpu], list: &str) -> Vec<usize> {
    let position = |entry: &str| match entry.trim().parse::<usize>() {
        Ok(number) => Some(number).filter(|number| *number < gpus.len()),
        Err(_) => gpus
            .iter()
            .position(|gpu| !entry.trim().is_empty() && gpu.uuid.starts_with(entry.trim())),
    };
    list.split(',').map_while(position).collect()
}

/// The socket of the daemon.
fn control() -> PathBuf {
    let pipe = env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    PathBuf::from(pipe).join("control")
}

/// Whether a daemon accepts a connection.
fn has_daemon() -> bool {
    let connected = || -> Result<(), Errno> {
        let address = SocketAddrUnix::new(control())?;
        let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&client, &address)
    };
    connected().is_ok()
}
