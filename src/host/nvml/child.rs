//! The process that asks NVML.

use super::CHILD_ARGUMENT;
use super::answer::{DriverFacts, GpuFacts, Line, MAX_GPUS, MAX_MIG_DEVICES, MigFacts, NvmlStep};
use super::convert::{
    addressing_mode, architecture, bounded, compute_mode, is_lost, known, meaning, mig_state, missing_function,
    virtualization_mode,
};
use crate::inventory::MigMode;
use crate::sys::nvml;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as ffi;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs as the child if the program was started as one. A program that calls [`super::super::discover`] with itself as
/// [`super::super::Options::program`] calls this before anything else in its `main`.
///
/// What the child found out goes through the pipe; the exit code says only whether that pipe worked.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != CHILD_ARGUMENT {
        return None;
    }
    let library = args.next()?;
    Some(match run(&library) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn run(library: &OsStr) -> io::Result<()> {
    let mut out = Pipe::take()?;
    ask(library, &mut out)
}

/// Whether anybody may still read what is written to `pipe` (poll(2), `POLLERR`).
fn has_reader(pipe: impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    poll(&mut asked, PollTimeout::ZERO)?;
    let says = asked[0].revents().unwrap_or(PollFlags::empty());
    Ok(!says.contains(PollFlags::POLLERR))
}

/// Our end of the pipe, with what was said already.
struct Pipe {
    file: File,
    missing: BTreeSet<String>,
    said: Instant,
}

/// A library that answers is heard of at least so often, and a fast one is not slowed down by a line for each call.
const SIGN_OF_LIFE: Duration = Duration::from_millis(20);

impl Pipe {
    /// Takes standard output away from the library, which might print.
    fn take() -> io::Result<Self> {
        // Who started us reports a crash; a core file of each would only fill the disk. A limit of one byte also keeps the
        // kernel from starting a program that takes it, which a limit of none does not (core(5)). Not PR_SET_DUMPABLE: it
        // would hide from a plain user what the library forks, which must end with us.
        setrlimit(Resource::RLIMIT_CORE, 1, 1).or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0))?;
        // Whoever waits for the answer may be gone: a library that hangs must not stay behind.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        // Who was gone before that sends no signal, and reads no more.
        if !has_reader(io::stdout())? {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        nix::unistd::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
        Ok(Self {
            file,
            missing: BTreeSet::new(),
            said: Instant::now(),
        })
    }

    /// One line, written at once: what comes next may not return.
    fn say(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.said = Instant::now();
        self.file.write_all(&text)
    }

    /// Says that the library has answered, if nothing was said for a while.
    fn alive(&mut self) -> io::Result<()> {
        match self.said.elapsed() < SIGN_OF_LIFE {
            true => Ok(()),
            false => self.say(&Line::Alive),
        }
    }

    /// Returns the value of a call. What went wrong is reported, unless the device lacks the feature.
    fn value_of<T>(&mut self, object: &str, what: &str, answer: Result<T, NvmlError>) -> io::Result<Option<T>> {
        self.alive()?;
        let error = match answer {
            Ok(value) => return Ok(Some(value)),
            // Most GPUs lack some feature.
            Err(NvmlError::NotSupported) => return Ok(None),
            Err(error) => error,
        };
        match missing_function(&error) {
            Some(name) => {
                if self.missing.insert(name.to_owned()) {
                    self.say(&Line::Missing(name.to_owned()))?;
                }
            }
            None => self.say(&Line::Problem {
                object: object.to_owned(),
                text: format!("NVML does not report its {what}: {}", meaning(&error)),
            })?,
        }
        Ok(None)
    }
}

fn ask(library: &OsStr, out: &mut Pipe) -> io::Result<()> {
    out.say(&Line::At(NvmlStep::Load))?;
    nvml::preload(library);
    out.say(&Line::At(NvmlStep::Init))?;
    let nvml = match Nvml::builder().lib_path(library).init() {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(e)) => return out.say(&Line::Useless(format!("cannot be loaded: {e}"))),
        Err(e) => return out.say(&Line::Useless(format!("nvmlInit: {}", meaning(&e)))),
    };
    let result = ask_everything(&nvml, out);
    // The answer is complete, so the result of the shutdown does not matter. Without the function, dropping panics.
    match nvml.lib().nvmlShutdown.is_ok() {
        true => drop(nvml),
        false => std::mem::forget(nvml),
    }
    result
}

fn ask_everything(nvml: &Nvml, out: &mut Pipe) -> io::Result<()> {
    out.say(&Line::At(NvmlStep::Driver))?;
    let version = bounded(nvml.sys_driver_version(), ffi::NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
    let version = out.value_of("NVML", "driver version", version)?;
    let cuda = out.value_of("NVML", "CUDA version", nvml.sys_cuda_driver_version())?;
    let count = match nvml.device_count() {
        Ok(count) if count <= MAX_GPUS => count,
        Ok(count) => {
            return out.say(&Line::Useless(format!(
                "reports {count} GPUs, which is more than a host can have"
            )));
        }
        Err(e) => {
            return out.say(&Line::Useless(format!(
                "does not report the number of GPUs: {}",
                meaning(&e)
            )));
        }
    };
    out.say(&Line::Driver(DriverFacts { version, cuda, count }))?;
    for index in 0..count {
        out.say(&Line::At(NvmlStep::Gpu(index)))?;
        let line = match nvml.device_by_index(index) {
            Ok(device) => ask_gpu(index, &device, out)?,
            Err(e) => lost(index, &e),
        };
        out.say(&line)?;
    }
    out.say(&Line::End)
}

fn lost(index: u32, error: &NvmlError) -> Line {
    Line::Lost {
        index,
        why: meaning(error),
    }
}

fn ask_gpu(index: u32, device: &Device<'_>, out: &mut Pipe) -> io::Result<Line> {
    // A GPU that fell off the bus may still have a handle. The UUID is the first answer that needs the GPU itself.
    let uuid = match uuid(device) {
        Err(e) if is_lost(&e) => return Ok(lost(index, &e)),
        uuid => uuid,
    };
    out.alive()?;
    let gpu = &format!("gpu {index}");
    let capability = device.cuda_compute_capability();
    let pci = device.pci_info().map(|pci| pci.bus_id);
    let mut facts = GpuFacts {
        index,
        uuid: out.value_of(gpu, "UUID", uuid)?,
        minor: out.value_of(gpu, "minor", device.minor_number())?,
        pci: out.value_of(
            gpu,
            "PCI address",
            bounded(pci, ffi::NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE),
        )?,
        name: out.value_of(gpu, "name", name(device))?,
        architecture: out
            .value_of(gpu, "architecture", known(device.architecture()))?
            .flatten()
            .and_then(architecture),
        compute_capability: out
            .value_of(gpu, "compute capability", capability)?
            .map(|c| (c.major, c.minor)),
        mig: out.value_of(gpu, "MIG mode", device.mig_mode())?.and_then(mig_state),
        compute_mode: out
            .value_of(gpu, "compute mode", known(device.compute_mode()))?
            .flatten()
            .map(compute_mode),
        persistence: out
            .value_of(gpu, "persistence mode", known(device.is_in_persistent_mode()))?
            .flatten(),
        virtualization: out
            .value_of(gpu, "virtualization mode", known(device.virtualization_mode()))?
            .flatten()
            .map(virtualization_mode),
        addressing: out
            .value_of(gpu, "addressing mode", nvml::addressing_mode(device))?
            .and_then(addressing_mode),
        ..GpuFacts::default()
    };
    match nvml::memory(device) {
        Err(e) if is_lost(&e) => return Ok(lost(index, &e)),
        memory => facts.memory = out.value_of(gpu, "memory", memory)?,
    }
    if facts.mig.is_some_and(|mode| mode.current == MigMode::Enabled) {
        let max = out.value_of(gpu, "number of MIG devices", device.mig_device_count())?;
        for mig in 0..max.unwrap_or(0).min(MAX_MIG_DEVICES) {
            let object = &format!("gpu {index}:{mig}");
            let instance = device.mig_device_by_index(mig);
            out.alive()?;
            match instance {
                Ok(instance) => facts.mig_devices.push(ask_mig(object, mig, &instance, out)?),
                // The indices of MIG devices have gaps.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
                Err(e) => {
                    out.value_of::<()>(object, "handle", Err(e))?;
                }
            }
        }
    }
    Ok(Line::Gpu(Box::new(facts)))
}

fn ask_mig(object: &str, index: u32, device: &Device<'_>, out: &mut Pipe) -> io::Result<MigFacts> {
    let attributes = out.value_of(object, "attributes", device.attributes())?;
    Ok(MigFacts {
        index,
        uuid: out.value_of(object, "UUID", uuid(device))?,
        name: out.value_of(object, "name", name(device))?,
        gpu_instance: out.value_of(object, "GPU instance", nvml::gpu_instance(device))?,
        compute_instance: out.value_of(object, "compute instance", nvml::compute_instance(device))?,
        memory_mib: attributes.as_ref().map(|a| a.memory_size_mb),
        gpu_slices: attributes.as_ref().map(|a| a.gpu_instance_slice_count),
        compute_slices: attributes.map(|a| a.compute_instance_slice_count),
    })
}

fn uuid(device: &Device<'_>) -> Result<String, NvmlError> {
    bounded(device.uuid(), ffi::NVML_DEVICE_UUID_V2_BUFFER_SIZE)
}

fn name(device: &Device<'_>) -> Result<String, NvmlError> {
    bounded(device.name(), ffi::NVML_DEVICE_NAME_V2_BUFFER_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_reads_no_more() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(has_reader(&writer).unwrap());
        drop(reader);
        assert!(!has_reader(&writer).unwrap());
    }
}
