//! Numbers that identify something. Each has a type of its own, so that one cannot be used in the place of another.

/// Reads decimal digits, without a sign or a space.
pub fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit());
    is_decimal.then(|| text.parse().ok())?
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        super::parsed_type!($name, |text| decimal(text).map(Self), "not a number");
    };
}

number!(
    /// NVML's index of a GPU: its position in the order of PCI addresses. It can differ from the minor of its node.
    GpuIndex
);
number!(
    /// The minor number of `/dev/nvidiaN`, and the N in that name. It can differ from NVML's index.
    Minor
);
number!(
    /// NVML's index of a MIG device within its GPU: the `1` of `0:1`.
    MigIndex
);
number!(
    /// The driver's id of a GPU instance, as in `/proc/driver/nvidia/capabilities/gpu0/mig/gi<ID>`.
    GpuInstanceId
);
number!(
    /// The driver's id of a compute instance within its GPU instance.
    ComputeInstanceId
);
number!(
    /// The minor number of `/dev/nvidia-caps/nvidia-capN`, and the N in that name.
    CapMinor
);
number!(
    /// The number of an IMEX channel, `/dev/nvidia-caps-imex-channels/channelN`: 0 to 2^20-1.
    ImexChannelId
);
