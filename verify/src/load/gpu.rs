//! The device, and the pieces of work that it can do.

use crate::arguments::{Fault, Options, Role};
use crate::failure::{Failure, NEEDED};
use core::ffi::CStr;
use core::fmt::Write;
use inside::json::{Escaped, Output, Uuid};
use inside::sys::clock;
use inside::sys::cuda::work::{DeviceMemory, HostMemory, Kernel, Stream};
use inside::sys::cuda::{Answer, Attribute, Context, Cuda, Device, Unanswered};
use inside::sys::deadline::step;

/// The kernels, as text that the driver compiles.
const KERNELS: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernels.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => c"",
};

/// The blocks of a request's calculation and their threads. They do not depend on the SMs that the process sees: under
/// a limit the same work has to take longer. They are many times the blocks that run at once on any device, so that
/// the last ones, which do not fill it, are a small part.
const FMA: (u32, u32) = (16_384, 128);
/// The blocks and threads of a copy: as many as run at once on any device.
const COPY: (u32, u32) = (2048, 256);
/// The blocks and threads that hold SMs: more than any device has room for.
const SPIN: (u32, u32) = (2048, 512);
/// The blocks and threads that look for SMs. One or two of them fill an SM.
pub(crate) const PROBE: (u32, u32) = (1024, 1024);

/// How long a kernel of `hog-sm` takes.
const SPIN_NS: u64 = 100_000_000;
/// Turns of its loop that take longer on any device.
const SPIN_MOST: u64 = 20_000_000;
/// How long each block that looks for SMs holds its place, and turns that take longer.
const PROBE_NS: u64 = 200_000;
const PROBE_MOST: u64 = 1_000_000;
/// An address on the page that is nobody's in any process.
const NOBODYS: u64 = 16;

/// What the kernels write their results into.
const SCRATCH: usize = 1 << 20;
const MIB: u64 = 1 << 20;
/// What one piece of work of a hog copies at least: half a millisecond with the fastest cache, so that the records of a
/// minute have room, and less than a tenth of a second with the slowest memory.
const PIECE: u64 = 8192 * MIB;

/// Two halves of a copy's footprint.
struct Pair {
    to: DeviceMemory,
    from: DeviceMemory,
}

/// What `hog-pcie` copies, in both directions at once.
struct Pinned {
    given: HostMemory,
    taken: HostMemory,
    second: Stream,
}

/// What `keep` has filled.
struct Filled {
    memory: DeviceMemory,
    /// What its numbers depend on, so that they are not those of an earlier process.
    seed: u64,
}

/// The device with everything that the role needs.
pub(crate) struct Gpu<'a> {
    pub(crate) cuda: &'a Cuda,
    device: Device,
    context: Context<'a>,
    stream: Stream,
    fma: Kernel,
    copy: Kernel,
    spin: Kernel,
    probe: Kernel,
    trap: Kernel,
    address: Kernel,
    fill: Kernel,
    compare: Kernel,
    scratch: DeviceMemory,
    results: HostMemory,
    pair: Option<Pair>,
    pinned: Option<Pinned>,
    filled: Option<Filled>,
    /// How long it took from the first call of CUDA to the end of the first kernel, in nanoseconds.
    context_ns: u64,
}

impl<'a> Gpu<'a> {
    /// Makes everything that the role needs on CUDA's first device.
    pub(crate) fn open(cuda: &'a Cuda, options: &Options) -> Result<Self, Failure> {
        step(c"cuDriverGetVersion");
        match cuda.version()? {
            found if found < NEEDED => return Err(Failure::OldDriver(found)),
            _ => {}
        }
        let first = clock::now();
        step(c"cuInit");
        cuda.init()?;
        if cuda.device_count()? == 0 {
            return Err(Unanswered::Error(c"cuDeviceGetCount", 100).into());
        }
        let device = cuda.device(0)?;
        step(c"cuDevicePrimaryCtxRetain");
        let context = cuda.context(device)?;
        step(c"cuModuleLoadDataEx");
        let module = context.module(KERNELS)?;
        step(c"a call of CUDA");
        let mut gpu = Self {
            cuda,
            device,
            stream: context.stream()?,
            fma: context.kernel(&module, c"tranche_fma")?,
            copy: context.kernel(&module, c"tranche_copy")?,
            spin: context.kernel(&module, c"tranche_spin")?,
            probe: context.kernel(&module, c"tranche_probe")?,
            trap: context.kernel(&module, c"tranche_trap")?,
            address: context.kernel(&module, c"tranche_address")?,
            fill: context.kernel(&module, c"tranche_fill")?,
            compare: context.kernel(&module, c"tranche_compare")?,
            scratch: allocate(&context, SCRATCH)?,
            results: context.pinned(PROBE.0 as usize * 16)?,
            pair: None,
            pinned: None,
            filled: None,
            context_ns: 0,
            context,
        };
        gpu.chain(1)?;
        gpu.wait()?;
        gpu.context_ns = clock::now().saturating_sub(first);
        let bytes = match options.bytes {
            Some(bytes) => bytes,
            None => gpu.usual_bytes(options.role)?,
        };
        gpu.make_buffers(options.role, bytes)?;
        Ok(gpu)
    }

    /// The footprint of the role's copies, where none is given.
    fn usual_bytes(&self, role: Role) -> Answer<u64> {
        let l2 = u64::try_from(self.cuda.attribute(Attribute::L2Bytes, self.device)?).unwrap_or(0);
        Ok(match role {
            Role::HogDram => (4 * l2).max(256 * MIB),
            Role::HogL2 => l2.max(MIB),
            Role::HogPcie => 128 * MIB,
            Role::Keep => 100 * MIB,
            _ => 32 * MIB,
        })
    }

    fn make_buffers(&mut self, role: Role, bytes: u64) -> Result<(), Failure> {
        if role == Role::Keep {
            // Whole numbers of 8 bytes.
            let bytes = usize::try_from(bytes / 8 * 8).unwrap_or(usize::MAX);
            let memory = allocate(&self.context, bytes)?;
            let seed = clock::now();
            let parameters = [memory.address, memory.bytes as u64 / 8, seed];
            self.context.launch(self.fill, COPY, self.stream, parameters)?;
            self.wait()?;
            self.filled = Some(Filled { memory, seed });
            return Ok(());
        }
        // Whole vectors of 16 bytes.
        let half = usize::try_from(bytes / 32 * 16).unwrap_or(usize::MAX);
        if half == 0 || !(role.copies() || role == Role::HogPcie) {
            return Ok(());
        }
        self.pair = Some(Pair {
            to: allocate(&self.context, half)?,
            from: allocate(&self.context, half)?,
        });
        if role == Role::HogPcie {
            self.pinned = Some(Pinned {
                given: self.context.pinned(half)?,
                taken: self.context.pinned(half)?,
                second: self.context.stream()?,
            });
        }
        Ok(())
    }

    /// Prints the `ready` event.
    pub(crate) fn ready(&self, out: &mut Output) -> Result<(), Failure> {
        let attribute = |attribute| self.cuda.attribute(attribute, self.device);
        let mut buffer = [0; 128];
        let name = self.cuda.name(self.device, &mut buffer)?;
        // CUDA gives the UUID without its prefix, and tells a MIG instance by its name: `NVIDIA A100 MIG 1g.5gb`.
        let prefix = match name.windows(5).any(|part| part == b" MIG ") {
            true => "MIG",
            false => "GPU",
        };
        let uuid = Uuid(self.cuda.uuid(self.device)?);
        let (free, _) = self.context.memory()?;
        write!(
            out,
            "{{\"event\":\"ready\",\"at\":{},\"context_ns\":{},\"version\":1,\"name\":\"{}\",\"uuid\":\"{prefix}-{uuid}\"",
            clock::now(),
            self.context_ns,
            Escaped(name),
        )?;
        writeln!(
            out,
            ",\"sms\":{},\"l2_bytes\":{},\"memory_bytes\":{},\"free_bytes\":{free},\"capability\":[{},{}],\"driver\":{}}}",
            attribute(Attribute::Sms)?,
            attribute(Attribute::L2Bytes)?,
            self.cuda.memory(self.device)?,
            attribute(Attribute::Major)?,
            attribute(Attribute::Minor)?,
            self.cuda.version()?,
        )?;
        match out.flush() {
            true => Ok(()),
            false => Err(Failure::OutputClosed),
        }
    }

    fn wait(&self) -> Answer<()> {
        self.context.synchronize(self.stream)
    }

    /// Begins a chain of calculations.
    fn chain(&self, iterations: u64) -> Answer<()> {
        let parameters = [self.scratch.address, iterations];
        self.context.launch(self.fma, FMA, self.stream, parameters)
    }

    /// Begins copies of one half of the footprint to the other.
    fn copies(&self, passes: u64) -> Answer<()> {
        let Some(Pair { to, from }) = &self.pair else {
            return Ok(());
        };
        let parameters = [to.address, from.address, to.bytes as u64 / 16, passes];
        self.context.launch(self.copy, COPY, self.stream, parameters)
    }

    /// Does a request: a chain of calculations, and then a copy.
    pub(crate) fn request(&self, iterations: u64) -> Answer<()> {
        self.chain(iterations)?;
        self.copies(1)?;
        self.wait()
    }

    /// Copies for a while. Returns the bytes that were read and written.
    pub(crate) fn copy(&self) -> Answer<u64> {
        let footprint = self.pair.as_ref().map_or(0, |pair| 2 * pair.to.bytes as u64);
        let passes = PIECE.checked_div(footprint).unwrap_or(0).max(1);
        self.copies(passes)?;
        self.wait()?;
        Ok(passes * footprint)
    }

    /// Holds all SMs with one kernel.
    pub(crate) fn spin(&mut self) -> Answer<()> {
        self.results.numbers().fill(0);
        let begin = DeviceMemory {
            bytes: size_of::<u64>(),
            ..self.scratch
        };
        self.context.copy_in(begin, &mut self.results, self.stream)?;
        let parameters = [self.scratch.address, SPIN_NS, SPIN_MOST];
        self.context.launch(self.spin, SPIN, self.stream, parameters)?;
        self.wait()
    }

    /// Copies from the host to the device and from the device to the host. Returns the bytes of both.
    pub(crate) fn exchange(&mut self) -> Answer<u64> {
        let Some((pair, pinned)) = self.pair.as_ref().zip(self.pinned.as_mut()) else {
            return Ok(0);
        };
        self.context.copy_in(pair.to, &mut pinned.given, self.stream)?;
        self.context.copy_out(&mut pinned.taken, pair.from, pinned.second)?;
        self.context.synchronize(pinned.second)?;
        self.context.synchronize(self.stream)?;
        Ok(2 * pair.to.bytes as u64)
    }

    /// The number of the SM that each of many blocks ran on.
    pub(crate) fn seen(&mut self) -> Answer<impl Iterator<Item = u64>> {
        let parameters = [self.scratch.address, PROBE_NS, PROBE_MOST];
        self.context.launch(self.probe, PROBE, self.stream, parameters)?;
        self.context.copy_out(&mut self.results, self.scratch, self.stream)?;
        self.context.synchronize(self.stream)?;
        Ok(self.results.numbers().iter().step_by(2).copied())
    }

    /// Compares each byte of the memory that was filled. Returns its bytes, and how many numbers of 8 bytes differ.
    pub(crate) fn compare(&mut self) -> Answer<(u64, u64)> {
        let Some(Filled { memory, seed }) = &self.filled else {
            return Ok((0, 0));
        };
        let bytes = memory.bytes as u64;
        let parameters = [memory.address, bytes / 8, *seed, self.scratch.address];
        self.results.numbers().fill(0);
        self.context.copy_in(self.scratch, &mut self.results, self.stream)?;
        self.context.launch(self.compare, COPY, self.stream, parameters)?;
        self.context.copy_out(&mut self.results, self.scratch, self.stream)?;
        self.context.synchronize(self.stream)?;
        Ok((bytes, self.results.numbers().first().copied().unwrap_or(0)))
    }

    /// Runs a kernel that fails.
    pub(crate) fn fail(&self, kind: Fault) -> Answer<()> {
        let (kernel, parameter) = match kind {
            Fault::Trap => (self.trap, self.scratch.address),
            Fault::Address => (self.address, NOBODYS),
        };
        self.context.launch(kernel, (1, 1), self.stream, [parameter])?;
        self.wait()
    }

    /// Takes memory of the device until the end of the process.
    pub(crate) fn take(&self, bytes: u64) -> Answer<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.context.allocate(bytes).map(|_| ())
    }
}

/// Memory of the device for a buffer of this program.
fn allocate(context: &Context<'_>, bytes: usize) -> Result<DeviceMemory, Failure> {
    context.allocate(bytes).map_err(|call| match call {
        Unanswered::Error(_, 2) => Failure::NoMemory {
            wanted: bytes,
            free: context.memory().map_or(0, |(free, _)| free),
            call,
        },
        _ => call.into(),
    })
}
