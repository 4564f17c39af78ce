//! The process that asks NVML.

use super::CHILD_ARGUMENT;
use super::answer::{DriverFacts, GpuFacts, Line, MAX_GPUS, MAX_MIG_DEVICES, MigFacts, Step};
use crate::sys::nvml::{self, Device, Failure, Nvml};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use std::collections::BTreeSet;
use std::ffi::OsString;
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
    Some(match run(library) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn run(library: OsString) -> io::Result<()> {
    let mut out = Pipe::take()?;
    ask(&library, &mut out)
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
    missing: BTreeSet<&'static str>,
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

    /// The value of a call, or nothing; what deserves a line gets it.
    fn take_or_say<T>(
        &mut self,
        object: impl std::fmt::Display,
        what: &str,
        answer: Result<T, Failure>,
    ) -> io::Result<Option<T>> {
        self.alive()?;
        match answer {
            Ok(value) => return Ok(Some(value)),
            Err(Failure::Missing(name)) => {
                if self.missing.insert(name) {
                    self.say(&Line::Missing(name.to_owned()))?;
                }
            }
            // Most GPUs lack something: that is a fact about them, not a fault.
            Err(Failure::Code(nvml::NOT_SUPPORTED)) => {}
            Err(failure) => self.say(&Line::Problem {
                object: object.to_string(),
                text: format!("NVML does not tell its {what}: {failure}"),
            })?,
        }
        Ok(None)
    }
}

fn ask(library: &OsString, out: &mut Pipe) -> io::Result<()> {
    out.say(&Line::At(Step::Load))?;
    let nvml = match Nvml::load(library) {
        Ok(nvml) => nvml,
        Err(why) => return out.say(&Line::Useless(format!("cannot be loaded: {why}"))),
    };
    out.say(&Line::At(Step::Init))?;
    if let Err(why) = nvml.init() {
        return out.say(&Line::Useless(format!("nvmlInit: {why}")));
    }
    let told = ask_everything(&nvml, out);
    // The answer is complete; how the shutdown goes is no longer of interest to anybody.
    let _ = nvml.shutdown();
    told
}

fn ask_everything(nvml: &Nvml, out: &mut Pipe) -> io::Result<()> {
    out.say(&Line::At(Step::Driver))?;
    let version = out.take_or_say("NVML", "driver version", nvml.driver_version())?;
    let cuda = out.take_or_say("NVML", "CUDA version", nvml.cuda_version())?;
    let count = match nvml.device_count() {
        Ok(count) if count <= MAX_GPUS => count,
        Ok(count) => return out.say(&Line::Useless(format!("claims {count} GPUs, which no machine has"))),
        Err(why) => return out.say(&Line::Useless(format!("does not count GPUs: {why}"))),
    };
    out.say(&Line::Driver(DriverFacts { version, cuda, count }))?;
    for index in 0..count {
        out.say(&Line::At(Step::Gpu(index)))?;
        let line = match nvml.device(index) {
            Ok(device) => ask_gpu(index, device, out)?,
            Err(why) => Line::Lost {
                index,
                why: why.to_string(),
            },
        };
        out.say(&line)?;
    }
    out.say(&Line::End)
}

fn ask_gpu(index: u32, device: Device<'_>, out: &mut Pipe) -> io::Result<Line> {
    // A GPU that fell off the bus may still have a handle; its UUID is the first thing that needs the GPU.
    let uuid = match device.uuid() {
        Err(Failure::Code(code)) if is_loss(code) => {
            let why = Failure::Code(code).to_string();
            return Ok(Line::Lost { index, why });
        }
        uuid => uuid,
    };
    out.alive()?;
    let gpu = format!("gpu {index}");
    let mut facts = GpuFacts {
        index,
        uuid: out.take_or_say(&gpu, "UUID", uuid)?,
        minor: out.take_or_say(&gpu, "minor", device.minor())?,
        pci: out.take_or_say(&gpu, "PCI address", device.pci())?,
        name: out.take_or_say(&gpu, "name", device.name())?,
        architecture: out.take_or_say(&gpu, "architecture", device.architecture())?,
        compute_capability: out.take_or_say(&gpu, "compute capability", device.compute_capability())?,
        mig: out.take_or_say(&gpu, "MIG mode", device.mig_mode())?,
        compute_mode: out.take_or_say(&gpu, "compute mode", device.compute_mode())?,
        persistence: out.take_or_say(&gpu, "persistence mode", device.persistence())?,
        virtualization: out.take_or_say(&gpu, "virtualization mode", device.virtualization())?,
        addressing: out.take_or_say(&gpu, "addressing mode", device.addressing())?,
        memory: None,
        mig_devices: Vec::new(),
    };
    match device.memory() {
        Err(Failure::Code(code)) if is_loss(code) => {
            let why = Failure::Code(code).to_string();
            return Ok(Line::Lost { index, why });
        }
        memory => facts.memory = out.take_or_say(&gpu, "memory", memory)?,
    }
    if facts.mig.is_some_and(|(current, _)| current == 1) {
        let max = out.take_or_say(&gpu, "number of MIG devices", device.max_mig_devices())?;
        for mig in 0..max.unwrap_or(0).min(MAX_MIG_DEVICES) {
            let instance = device.mig_device(mig);
            out.alive()?;
            match instance {
                Ok(instance) => facts.mig_devices.push(ask_mig(index, mig, instance, out)?),
                // Indices have gaps.
                Err(Failure::Code(nvml::NOT_FOUND | nvml::INVALID_ARGUMENT)) => {}
                other => {
                    out.take_or_say(format!("gpu {index}:{mig}"), "handle", other)?;
                }
            }
        }
    }
    Ok(Line::Gpu(Box::new(facts)))
}

fn ask_mig(gpu: u32, index: u32, device: Device<'_>, out: &mut Pipe) -> io::Result<MigFacts> {
    let object = format!("gpu {gpu}:{index}");
    let attributes = out.take_or_say(&object, "attributes", device.attributes())?;
    Ok(MigFacts {
        index,
        uuid: out.take_or_say(&object, "UUID", device.uuid())?,
        name: out.take_or_say(&object, "name", device.name())?,
        gpu_instance: out.take_or_say(&object, "GPU instance", device.gpu_instance())?,
        compute_instance: out.take_or_say(&object, "compute instance", device.compute_instance())?,
        memory_mib: attributes.map(|a| a.memory_mib),
        gpu_slices: attributes.map(|a| a.gpu_slices),
        compute_slices: attributes.map(|a| a.compute_slices),
    })
}

/// Whether this code means that the GPU is gone, and not that it does not tell one thing: lost, not reachable, not
/// found.
fn is_loss(code: u32) -> bool {
    matches!(code, 15 | 17 | 28)
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
