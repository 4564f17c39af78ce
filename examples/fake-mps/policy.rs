//! `nvidia-smi compute-policy`: the length of a turn of each GPU, in `time-slices.json` beside the configuration.

use crate::config::{Config, Fault, hang};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

const NAMES: [&str; 4] = ["Default", "Short", "Medium", "Long"];

pub(crate) fn run(config: &Config, arguments: &[String]) -> ExitCode {
    config.record("nvidia-smi", json!({"arguments": arguments}));
    match config.policy_fault() {
        None => {}
        Some(Fault::Hung) => hang(),
        Some(Fault::Garbage) => {
            println!("\u{1}\u{2} no table");
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            println!("Unable to set timeslice: Insufficient Permissions");
            return ExitCode::from(4);
        }
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let file = config.directory.join("time-slices.json");
    let text = std::fs::read(&file).unwrap_or_else(|_| b"{}".to_vec());
    let mut slices: BTreeMap<String, usize> = serde_json::from_slice(&text).unwrap();
    match words[..] {
        ["compute-policy", "-i", gpu, "--list"] => {
            let name = NAMES[slices.get(gpu).copied().unwrap_or(0)];
            println!("+-------------------------------------+");
            println!("| GPU compute policies:               |");
            println!("| GPU     Name       Value            |");
            println!("|=====================================|");
            println!("|   0     Timeslice  {name:<16} |");
            println!("+-------------------------------------+");
        }
        ["compute-policy", "-i", gpu, set] => {
            let value = set
                .strip_prefix("--set-timeslice=")
                .and_then(|value| value.parse().ok());
            let Some(value) = value.filter(|value| *value < NAMES.len()) else {
                println!("Invalid option {set}");
                return ExitCode::from(2);
            };
            slices.insert(gpu.to_owned(), value);
            std::fs::write(&file, serde_json::to_vec(&slices).unwrap()).unwrap();
            println!("Successfully set timeslice policy");
        }
        _ => {
            println!("Invalid combination of input arguments");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
