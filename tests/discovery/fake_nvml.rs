//! The fake libnvidia-ml through the bindings that tranche uses: it answers what `nvml.json` says, and fails as told.
#![allow(unsafe_code, reason = "NVML is a C library")]
#![allow(non_upper_case_globals, reason = "the names are NVML's")]

use crate::support::fake_host;
use nvml_wrapper_sys::bindings::*;
use serde_json::Value;
use std::ffi::{CStr, c_char, c_uint};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use fake_host::{Host, build, hosts, names};

/// The library of a host, opened and initialised.
fn open(host: &Host) -> NvmlLib {
    let library = load(host);
    // SAFETY: nvmlInit takes no arguments.
    assert_eq!(unsafe { library.nvmlInit_v2() }, nvmlReturn_enum_NVML_SUCCESS);
    library
}

fn load(host: &Host) -> NvmlLib {
    let path = host.path(host.nvml.as_ref().unwrap().to_str().unwrap());
    // SAFETY: our own library, which does nothing when it is loaded.
    unsafe { NvmlLib::new(path) }.unwrap()
}

/// A string that a function writes, or the error that it gives.
fn string(call: impl FnOnce(*mut c_char, c_uint) -> nvmlReturn_t) -> Result<String, nvmlReturn_t> {
    let mut buffer = [0_u8; 96];
    match call(buffer.as_mut_ptr().cast(), 96) {
        nvmlReturn_enum_NVML_SUCCESS => Ok(CStr::from_bytes_until_nul(&buffer)
            .unwrap()
            .to_string_lossy()
            .into_owned()),
        error => Err(error),
    }
}

/// A value that a function writes.
fn value<T: Default>(call: impl FnOnce(*mut T) -> nvmlReturn_t) -> Result<T, nvmlReturn_t> {
    let mut value = T::default();
    match call(&mut value) {
        nvmlReturn_enum_NVML_SUCCESS => Ok(value),
        error => Err(error),
    }
}

fn handle(library: &NvmlLib, index: u32) -> Result<nvmlDevice_t, nvmlReturn_t> {
    let mut device = null_mut();
    // SAFETY: the pointer is to a live variable.
    match unsafe { library.nvmlDeviceGetHandleByIndex_v2(index, &mut device) } {
        nvmlReturn_enum_NVML_SUCCESS => Ok(device),
        error => Err(error),
    }
}

/// Asks a device for a number.
macro_rules! ask {
    ($library:expr, $function:ident, $device:expr) => {
        // SAFETY: the handle is from this library and the pointer to a live variable.
        value(|to| unsafe { $library.$function($device, to) })
    };
}

/// Asks a device for a string.
macro_rules! ask_string {
    ($library:expr, $function:ident, $device:expr) => {
        // SAFETY: the handle is from this library and the buffer as long as we say.
        string(|to, room| unsafe { $library.$function($device, to, room) })
    };
}

fn config(name: &str) -> Option<Value> {
    let text = fs::read_to_string(hosts().join(name).join("nvml.json")).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn each_host_s_nvml_says_what_its_file_says() {
    for name in names().unwrap() {
        let Some(config) = config(&name) else { continue };
        let directory = tempfile::tempdir().unwrap();
        let host = build(&name, directory.path()).unwrap();
        let library = open(&host);
        // SAFETY: the buffer is as long as we say.
        let driver = string(|to, room| unsafe { library.nvmlSystemGetDriverVersion(to, room) });
        assert_eq!(driver.as_deref(), Ok(config["driver"].as_str().unwrap()), "{name}");
        // SAFETY: the pointer is to a live variable.
        let count: u32 = value(|to| unsafe { library.nvmlDeviceGetCount_v2(to) }).unwrap();
        let gpus = list(&config["gpus"]);
        assert_eq!(count as usize, gpus.len(), "{name}");
        for (index, gpu) in gpus.iter().enumerate() {
            if gpu["lost_after"] == 0 {
                assert_eq!(
                    handle(&library, index as u32),
                    Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
                    "{name}"
                );
                continue;
            }
            check_gpu(
                &library,
                handle(&library, index as u32).unwrap(),
                gpu,
                &format!("{name}: GPU {index}"),
            );
        }
    }
}

fn check_gpu(library: &NvmlLib, device: nvmlDevice_t, gpu: &Value, what: &str) {
    assert_eq!(
        ask_string!(library, nvmlDeviceGetUUID, device).as_deref(),
        Ok(gpu["uuid"].as_str().unwrap()),
        "{what}"
    );
    assert_eq!(
        ask_string!(library, nvmlDeviceGetName, device).as_deref(),
        Ok(gpu["name"].as_str().unwrap()),
        "{what}"
    );
    let minor: u32 = ask!(library, nvmlDeviceGetMinorNumber, device).unwrap();
    assert_eq!(u64::from(minor), gpu["minor"].as_u64().unwrap(), "{what}");
    // SAFETY: these structures are numbers and characters only.
    let (mut pci, mut memory) = unsafe { (std::mem::zeroed::<nvmlPciInfo_t>(), std::mem::zeroed::<nvmlMemory_t>()) };
    // SAFETY: the handle is from this library, the pointers are to live variables.
    unsafe {
        assert_eq!(
            library.nvmlDeviceGetPciInfo_v3(device, &mut pci),
            nvmlReturn_enum_NVML_SUCCESS,
            "{what}"
        );
        let expected = match gpu["memory_mib"].is_null() {
            true => nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            false => nvmlReturn_enum_NVML_SUCCESS,
        };
        assert_eq!(library.nvmlDeviceGetMemoryInfo(device, &mut memory), expected, "{what}");
    }
    let address: Vec<u8> = pci.busId.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    assert_eq!(
        String::from_utf8(address).unwrap().to_lowercase(),
        gpu["pci"].as_str().unwrap(),
        "{what}"
    );
    assert_eq!(
        format!("{:08x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device),
        gpu["pci"].as_str().unwrap()
    );
    assert_eq!(
        memory.total >> 20,
        gpu["memory_mib"].as_u64().unwrap_or_default(),
        "{what}"
    );
    if gpu["mig"].is_null() {
        let mut mode = [0; 2];
        let [current, pending] = &mut mode;
        // SAFETY: the handle is from this library, the pointers are to live variables.
        let result = unsafe { library.nvmlDeviceGetMigMode(device, current, pending) };
        assert_eq!(result, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED, "{what}");
        return;
    }
    let mut devices = Vec::new();
    for index in 0..gpu["mig"]["max"].as_u64().unwrap() as u32 {
        let mut found = null_mut();
        // SAFETY: the handle is from this library, the pointer is to a live variable.
        match unsafe { library.nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mut found) } {
            nvmlReturn_enum_NVML_SUCCESS => devices.push(found),
            error => assert_eq!(error, nvmlReturn_enum_NVML_ERROR_NOT_FOUND, "{what}"),
        }
    }
    let wanted: Vec<(&Value, &Value)> = list(&gpu["mig"]["instances"])
        .iter()
        .flat_map(|gi| list(&gi["compute"]).iter().map(move |ci| (gi, ci)))
        .collect();
    assert_eq!(devices.len(), wanted.len(), "{what}");
    for (device, (gi, ci)) in devices.into_iter().zip(wanted) {
        assert_eq!(
            ask_string!(library, nvmlDeviceGetUUID, device).as_deref(),
            Ok(ci["uuid"].as_str().unwrap())
        );
        let ids: [u32; 2] = [
            ask!(library, nvmlDeviceGetGpuInstanceId, device).unwrap(),
            ask!(library, nvmlDeviceGetComputeInstanceId, device).unwrap(),
        ];
        assert_eq!(
            ids.map(u64::from),
            [&gi["id"], &ci["id"]].map(|id| id.as_u64().unwrap()),
            "{what}"
        );
        let name = ask_string!(library, nvmlDeviceGetName, device).unwrap();
        assert!(name.ends_with(gi["profile"].as_str().unwrap()), "{what}: {name}");
        // SAFETY: this structure is numbers only.
        let mut attributes = unsafe { std::mem::zeroed::<nvmlDeviceAttributes_t>() };
        // SAFETY: the handle is from this library, the pointer is to a live variable.
        let result = unsafe { library.nvmlDeviceGetAttributes_v2(device, &mut attributes) };
        assert_eq!(result, nvmlReturn_enum_NVML_SUCCESS, "{what}");
        assert_eq!(attributes.memorySizeMB, gi["memory_mib"].as_u64().unwrap(), "{what}");
    }
}

fn host_with(change: impl FnOnce(&mut Value)) -> (tempfile::TempDir, Host) {
    let directory = tempfile::tempdir().unwrap();
    let host = build("minors-reordered", directory.path()).unwrap();
    host.nvml(change).unwrap();
    (directory, host)
}

#[test]
fn nothing_is_answered_before_init_and_after_shutdown() {
    let (_directory, host) = host_with(|_| ());
    let library = load(&host);
    // SAFETY: the pointer is to a live variable; nvmlInit and nvmlShutdown take no arguments.
    unsafe {
        let count = || value::<u32>(|to| library.nvmlDeviceGetCount_v2(to));
        assert_eq!(count(), Err(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED));
        assert_eq!(library.nvmlShutdown(), nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
        assert_eq!(library.nvmlInitWithFlags(0), nvmlReturn_enum_NVML_SUCCESS);
        assert_eq!(count(), Ok(4));
        assert_eq!(library.nvmlShutdown(), nvmlReturn_enum_NVML_SUCCESS);
        assert_eq!(count(), Err(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED));
    }
}

#[test]
fn init_fails_with_the_error_that_is_asked_for() {
    let (_directory, host) = host_with(|c| c["faults"]["init"] = "LIB_RM_VERSION_MISMATCH".into());
    // SAFETY: nvmlInit takes no arguments, and nvmlErrorString any number.
    let (result, text) = unsafe {
        let library = load(&host);
        let result = library.nvmlInit_v2();
        (
            result,
            CStr::from_ptr(library.nvmlErrorString(result))
                .to_string_lossy()
                .into_owned(),
        )
    };
    assert_eq!(result, nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH);
    assert_eq!(text, "Driver/library version mismatch");
}

#[test]
fn a_function_fails_for_all_gpus_or_for_one() {
    let (_directory, host) = host_with(|c| {
        c["faults"]["errors"] = serde_json::json!({"nvmlDeviceGetName": "TIMEOUT"});
        c["gpus"][1]["errors"] = serde_json::json!({"nvmlDeviceGetMinorNumber": "999"});
    });
    let library = open(&host);
    let devices: Vec<nvmlDevice_t> = (0..4).map(|i| handle(&library, i).unwrap()).collect();
    for device in &devices {
        assert_eq!(
            ask_string!(library, nvmlDeviceGetName, *device),
            Err(nvmlReturn_enum_NVML_ERROR_TIMEOUT)
        );
    }
    let minors: Vec<Result<u32, nvmlReturn_t>> = devices
        .iter()
        .map(|d| ask!(library, nvmlDeviceGetMinorNumber, *d))
        .collect();
    assert_eq!(minors, [Ok(2), Err(nvmlReturn_enum_NVML_ERROR_UNKNOWN), Ok(3), Ok(1)]);
}

#[test]
fn a_gpu_is_lost_from_the_call_that_is_asked_for() {
    let (_directory, host) = host_with(|c| c["gpus"][0]["lost_after"] = 2.into());
    let library = open(&host);
    let [first, second] = [0, 1].map(|i| handle(&library, i).unwrap());
    assert!(ask_string!(library, nvmlDeviceGetUUID, first).is_ok());
    assert_eq!(
        ask_string!(library, nvmlDeviceGetUUID, first),
        Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST)
    );
    assert_eq!(
        ask!(library, nvmlDeviceGetMinorNumber, first),
        Err::<u32, _>(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST)
    );
    assert!(ask_string!(library, nvmlDeviceGetUUID, second).is_ok());
}

#[test]
fn strings_come_without_an_end_or_as_garbage() {
    for (fault, terminated) in [("unterminated", false), ("garbage", true)] {
        let (_directory, host) = host_with(|c| c["faults"]["strings"] = fault.into());
        let library = open(&host);
        let mut buffer = [0_u8; 80];
        // SAFETY: the buffer is as long as we say.
        let result = unsafe { library.nvmlSystemGetDriverVersion(buffer.as_mut_ptr().cast(), 80) };
        assert_eq!(result, nvmlReturn_enum_NVML_SUCCESS, "{fault}");
        assert_eq!(buffer.contains(&0), terminated, "{fault}");
        assert_eq!(std::str::from_utf8(&buffer).is_err(), terminated, "{fault}");
    }
}

#[test]
fn symbols_are_missing_that_are_to_be_missing() {
    let (_directory, host) = host_with(|c| c["missing_symbols"] = serde_json::json!(["nvmlDeviceGetMemoryInfo_v2"]));
    let library = open(&host);
    assert!(library.nvmlDeviceGetMemoryInfo_v2.is_err());
    assert!(library.nvmlDeviceGetMemoryInfo.is_ok());
    let directory = tempfile::tempdir().unwrap();
    let old = open(&build("t4x2-old-driver", directory.path()).unwrap());
    assert!(old.nvmlDeviceGetNumaNodeId.is_err(), "450 did not have it");
    let (_directory, host) = host_with(|_| ());
    assert!(open(&host).nvmlDeviceGetMemoryInfo_v2.is_ok());
}

#[test]
fn another_file_is_read_where_the_environment_says_so() {
    let (directory, host) = host_with(|_| ());
    let other = directory.path().join("other.json");
    fs::write(&other, r#"{"driver": "999.1", "cuda": 12040, "gpus": []}"#).unwrap();
    let (status, output) = finish(init_in_child(&host, Some(&other)));
    assert!(status.success(), "{output}");
    assert!(output.contains("driver 999.1"), "{output}");
    let (_, output) = finish(init_in_child(&host, Some(Path::new("/nonexistent.json"))));
    assert!(output.contains("init 999"), "{output}");
}

#[test]
fn a_crash_in_init_is_a_real_one() {
    use std::os::unix::process::ExitStatusExt;
    let (_directory, host) = host_with(|c| c["faults"]["init"] = "crash".into());
    let (status, output) = finish(init_in_child(&host, None));
    assert!(output.contains("before init"), "{output}");
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{output}");
}

#[test]
fn a_hang_in_init_goes_on_until_the_process_is_killed() {
    use std::os::unix::process::ExitStatusExt;
    let (_directory, host) = host_with(|c| c["faults"]["init"] = "hang".into());
    let mut child = init_in_child(&host, None);
    let mut output = Vec::new();
    let mut byte = [0];
    while !output.ends_with(b"before init\n") {
        assert_eq!(
            child.stdout.as_mut().unwrap().read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&output)
        );
        output.extend(byte);
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// This program again, with nothing to do but [`child_that_initialises`].
fn init_in_child(host: &Host, config: Option<&Path>) -> Child {
    let library = host.path(host.nvml.as_ref().unwrap().to_str().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "fake_nvml::child_that_initialises",
            "--ignored",
            "--nocapture",
        ])
        .env("LIBRARY", library);
    if let Some(config) = config {
        command.env("TRANCHE_FAKE_NVML", config);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> (std::process::ExitStatus, String) {
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Not a test of its own: what a child of the tests above does, since it may not survive it.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child_that_initialises() {
    let path = std::env::var_os("LIBRARY").expect("other tests run this one");
    // SAFETY: our own library, which does nothing when it is loaded.
    let library = unsafe { NvmlLib::new(path) }.unwrap();
    println!("before init");
    // SAFETY: nvmlInit takes no arguments.
    println!("init {}", unsafe { library.nvmlInit_v2() });
    // SAFETY: the buffer is as long as we say.
    if let Ok(driver) = string(|to, room| unsafe { library.nvmlSystemGetDriverVersion(to, room) }) {
        println!("driver {driver}");
    }
}
