//! What CUDA and the container's environment say.

use inside::sys::cuda::{Answer, Attribute, Context, Cuda, Device};
use inside::sys::deadline::step;
use inside::sys::{self, Strings, socket};

/// The most devices that are examined. No machine has more GPUs.
const MOST_DEVICES: usize = 16;

/// Where a client of MPS looks for its daemon without `CUDA_MPS_PIPE_DIRECTORY`.
const PIPE: &[u8] = b"/tmp/nvidia-mps";

/// The environment of this process.
#[derive(Clone, Copy)]
pub(crate) struct Environment(pub(crate) Strings);

impl Environment {
    fn get(self, name: &[u8]) -> Option<&'static [u8]> {
        let mut variables = self.0;
        variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))
    }

    /// The variables that choose a device or limit it, as pairs of a name and a value.
    pub(crate) fn limits(self) -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
        self.0.filter_map(|variable| {
            let end = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = variable.split_at_checked(end)?;
            let is_limit = name.starts_with(b"CUDA_MPS_")
                || name.starts_with(b"NVIDIA_GPU_MEMORY_")
                || name == b"CUDA_VISIBLE_DEVICES";
            is_limit.then(|| (name, value.get(1..).unwrap_or_default()))
        })
    }
}

/// Everything that was found out.
pub(crate) struct Report {
    pub(crate) environment: Environment,
    pub(crate) uid: u32,
    /// The directory in which CUDA looks for the sockets of the MPS daemon.
    pub(crate) pipe: &'static [u8],
    /// Whether the socket there accepts a connection; otherwise the number of the error.
    pub(crate) control: Result<(), i32>,
    pub(crate) cuda: Result<Found, &'static [u8]>,
}

/// What the library said.
pub(crate) struct Found {
    pub(crate) library: Cuda,
    pub(crate) version: Answer<i32>,
    /// The number of devices, once CUDA was initialised.
    pub(crate) count: Answer<i32>,
    pub(crate) devices: [Option<DeviceReport>; MOST_DEVICES],
}

/// What the library said about one device.
pub(crate) struct DeviceReport {
    /// Kept for its name.
    pub(crate) device: Device,
    pub(crate) uuid: Answer<[u8; 16]>,
    pub(crate) compute_mode: Answer<i32>,
    /// The SMs that this process can use: after the context was made, because MPS limits the number there.
    pub(crate) sms: Answer<i32>,
    /// 1 if contexts on this device are shared by MPS. Older libraries do not know the attribute.
    pub(crate) mps: Answer<i32>,
    /// Bytes that are free and bytes in all.
    pub(crate) memory: Answer<(usize, usize)>,
    /// The largest block in bytes that could be allocated; `None` if that was not asked for.
    pub(crate) largest: Option<Answer<usize>>,
}

impl Report {
    /// Asks everything.
    pub(crate) fn make(environment: Environment, largest_allocation: bool) -> Self {
        let pipe = environment.get(b"CUDA_MPS_PIPE_DIRECTORY");
        let pipe = pipe.filter(|pipe| !pipe.is_empty()).unwrap_or(PIPE);
        step(c"the socket of the MPS daemon");
        let control = socket::connect(&[pipe, b"/control"]);
        step(c"the loader");
        let cuda = Cuda::open().map(|library| Found::ask(library, largest_allocation));
        Self {
            environment,
            uid: sys::uid(),
            pipe,
            control,
            cuda,
        }
    }

    /// Whether CUDA could be asked about devices.
    pub(crate) fn has_answer(&self) -> bool {
        self.cuda.as_ref().is_ok_and(|found| found.count.is_ok())
    }
}

impl Found {
    fn ask(library: Cuda, largest_allocation: bool) -> Self {
        step(c"cuInit");
        let count = library.init().and_then(|()| library.device_count());
        let mut devices = [const { None }; MOST_DEVICES];
        let ordinals = 0..count.unwrap_or(0);
        for (place, ordinal) in devices.iter_mut().zip(ordinals) {
            *place = library
                .device(ordinal)
                .ok()
                .map(|device| DeviceReport::ask(&library, device, largest_allocation));
        }
        Self {
            version: library.version(),
            library,
            count,
            devices,
        }
    }
}

impl DeviceReport {
    fn ask(cuda: &Cuda, device: Device, largest_allocation: bool) -> Self {
        step(c"cuDeviceGetUuid");
        let uuid = cuda.uuid(device);
        step(c"cuDevicePrimaryCtxRetain");
        let context = cuda.context(device);
        let in_context = context.as_ref().map_err(|unanswered| *unanswered);
        step(c"cuMemGetInfo");
        let memory = in_context.and_then(Context::memory);
        step(c"cuMemAlloc");
        let largest = largest_allocation.then(|| largest(in_context?, memory?.1));
        step(c"cuDeviceGetAttribute");
        Self {
            device,
            uuid,
            compute_mode: cuda.attribute(Attribute::ComputeMode, device),
            sms: in_context.and_then(|_| cuda.attribute(Attribute::Sms, device)),
            mps: cuda.attribute(Attribute::Mps, device),
            memory,
            largest,
        }
    }
}

/// The largest block that can be allocated, in steps of 2 MiB, of a device with `total` bytes.
fn largest(context: &Context<'_>, total: usize) -> Answer<usize> {
    const STEP: usize = 2 << 20;
    let (mut can, mut cannot) = (0, total / STEP + 1);
    while cannot - can > 1 {
        let steps = can + (cannot - can) / 2;
        match context.allocates(steps * STEP) {
            Ok(()) => can = steps,
            // CUDA_ERROR_OUT_OF_MEMORY.
            Err(sys::cuda::Unanswered::Error(_, 2)) => cannot = steps,
            Err(error) => return Err(error),
        }
    }
    Ok(can * STEP)
}
