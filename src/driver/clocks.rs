//! How fast a GPU runs, and what slows it down.

use crate::inventory::unless_lost;
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use tranche_driver_protocol::{GpuClocks, Slowed};

/// Asks a GPU.
///
/// # Errors
/// Returns the error that shows that the GPU is gone. What it does not report is unknown.
pub(crate) fn of(device: &Device<'_>) -> Result<GpuClocks, NvmlError> {
    let reasons = unless_lost(device.current_throttle_reasons())?;
    Ok(GpuClocks {
        sm_mhz: unless_lost(device.clock_info(Clock::SM))?.ok(),
        celsius: unless_lost(device.temperature(TemperatureSensor::Gpu))?.ok(),
        slowed: reasons.ok().map(|reasons| slowed(reasons).collect()),
    })
}

fn slowed(reasons: ThrottleReasons) -> impl Iterator<Item = Slowed> {
    let power = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    let heat = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
    let other = ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::SYNC_BOOST;
    let all = [(power, Slowed::Power), (heat, Slowed::Heat), (other, Slowed::Other)];
    let has = move |(mask, why)| reasons.intersects(mask).then_some(why);
    all.into_iter().filter_map(has)
}
