//! Prepares a device for its claims, or compares the machine with the ledger once, and ends: a broker that a test can
//! kill at any step of it.
//!
//! `control prepare|tick STATE_DIR ROOT POLICY TRANCHE`: the directory of the ledger, the directory that stands for the
//! host's `/`, the policy file, and the program `tranche`. The device is the first one of the plan.
#![allow(clippy::print_stderr, reason = "a program for the tests")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tranche_broker::control::nvml::ResidentDriver;
use tranche_broker::control::{Control, ControlOptions, MachineControl};
use tranche_broker::facts::{Facts, HostFacts};
use tranche_core::error::{Error, Result, line};
use tranche_core::types::HostPath;
use tranche_host::{DiscoveryOptions, RootPaths, Roots, discover};

/// A host that does not change.
struct Fixed(Arc<Facts>);

impl HostFacts for Fixed {
    fn now(&self) -> Result<Arc<Facts>> {
        Ok(Arc::clone(&self.0))
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let [act, state_dir, root, policy, program] = arguments else {
        return Err(Error::usage(
            "control",
            "expected prepare|tick STATE_DIR ROOT POLICY TRANCHE",
        ));
    };
    let driver = PathBuf::from(program).with_file_name("tranche-driver");
    let paths = RootPaths {
        root: Some(root.into()),
        ..RootPaths::default()
    };
    let discovery = DiscoveryOptions {
        program: Some(driver.clone()),
        ..DiscoveryOptions::default()
    };
    let inventory = discover(&Roots::new(&paths)?, &discovery);
    let policy = tranche_plan::policy::read::file(Path::new(policy), None)?.policy;
    let plan = tranche_plan::share::plan(&policy, &inventory)?;
    let device = plan.devices.first().map(|split| split.key.clone());
    let device = device.ok_or_else(|| Error::usage("policy", "splits no device"))?;
    let options = ControlOptions {
        state_dir: HostPath::new(state_dir)?,
        root: root.into(),
        program: PathBuf::from(program),
        driver: Arc::new(ResidentDriver::new(Some(driver))),
        systemctl: None,
        nvml_patience: Duration::from_secs(60),
    };
    let facts = Arc::new(Facts::new(inventory, Arc::new(plan), HostPath::root()));
    let control = Control::open(options, Arc::new(Fixed(facts)))?;
    match act.as_str() {
        "prepare" => control.prepare(&device),
        _ => {
            control.tick();
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", line(&error));
            ExitCode::FAILURE
        }
    }
}
