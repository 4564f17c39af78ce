//! What is kept of a run on the machine, and who says it.

use crate::bed::{Bed, Said, alone};
use crate::runs::run;
use crate::support::fake_host;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const HALVES: &str = "\
version: v1
sharing:
  mps:
    resources:
    - name: nvidia.com/gpu
      shares:
      - {name: a, compute: 50%, memory: 45%}
      - {name: b, compute: 50%, memory: 45%}
";

/// The text of `tranche plan` in one line.
fn plan(bed: &Bed) -> String {
    let said = bed.tranche(&["plan"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let wide = said.out.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
    said.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `tranche plan --json` says of the only device.
fn measured_here(bed: &Bed) -> Value {
    let said = bed.tranche(&["plan", "--json"]);
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    plan["measured_here"][0].clone()
}

fn file(bed: &Bed) -> std::path::PathBuf {
    let mut files = fs::read_dir(bed.at("state/kept/bench")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    file
}

/// What a command says of a machine that is described.
pub(crate) fn elsewhere(bed: &Bed, arguments: &[&str]) -> Said {
    let mut command = bed.command(&[arguments, &["--inventory=sim:rtx4090"]].concat());
    for root in ["DRIVER", "DEV", "PROC", "SYS"] {
        command.env_remove(format!("TRANCHE_{root}_ROOT"));
    }
    command.output().unwrap().into()
}

fn set_policy(bed: &Bed, text: &str) {
    fs::write(bed.at("policy.yaml"), text).unwrap();
}

#[test]
fn after_a_run_every_command_says_what_held() {
    alone(|| {
        let bed = Bed::new();
        set_policy(&bed, HALVES);
        assert!(plan(&bed).contains("not measured here; tranche bench 0 measures it"));
        assert_eq!(measured_here(&bed)["measured"], Value::Null);
        let arguments = ["--way=mps-50-50", "--beside=hog-sm", "--beside=fault", "--half"];
        run(&bed, &arguments);
        assert_eq!(fs::metadata(file(&bed)).unwrap().permissions().mode() & 0o777, 0o644);
        let text = plan(&bed);
        let (_, line) = text.split_once("measured here 20").unwrap();
        for part in [
            " (indicative): compute held (cap 50 %, seen 20 of 40 SMs, p99 ",
            "faults: ended ",
            " ms after the neighbour's fault",
            "; not measured: memory ",
        ] {
            assert!(line.contains(part), "{part}: {text}");
        }
        let here = measured_here(&bed);
        assert_eq!(here["measured"]["way"], "mps-50-50", "{here:#}");
        assert_eq!(here["measured"]["guarantees"][1]["outcome"], "held", "{here:#}");
        // The advice for two services of this size is this policy.
        let wish = ["advise", "--kind=service", "--count=2", "--memory=9Gi", "--compute=50%"];
        let advice = bed.tranche(&wish);
        let text = advice.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("gpu 0: measured here 20") && !text.contains("nothing was measured"),
            "{advice:?}"
        );
        // All that was measured held.
        bed.tranche(&["cdi", "refresh"]);
        let status = bed.tranche(&["status", "--no-gpu"]);
        assert!(!status.out.contains("measured here"), "{status:?}");
        // Of another machine nothing is said.
        for arguments in [&["plan"][..], &["plan", "--json"]] {
            let said = elsewhere(&bed, arguments);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(!said.out.contains("measured here") && !said.out.contains("measured_here"));
        }
        let advice = elsewhere(&bed, &wish);
        assert!(advice.out.contains("nothing was measured"), "{advice:?}");
    });
}

#[test]
fn another_driver_another_split_and_a_damaged_file_are_not_measured() {
    alone(|| {
        let bed = Bed::new();
        set_policy(&bed, HALVES);
        run(&bed, &["--way=mps-50-50", "--beside=hog-sm", "--half"]);
        let text = fs::read_to_string(file(&bed)).unwrap();
        let before = measured_here(&bed);
        assert!(before["measured"].is_object(), "{before:#}");

        set_policy(
            &bed,
            &HALVES
                .replacen("50%, memory", "80%, memory", 1)
                .replacen("50%, memory", "20%, memory", 1),
        );
        assert!(plan(&bed).contains("not measured here: measured as mps-50-50 only; tranche bench 0 measures it"));
        set_policy(&bed, HALVES);

        for (bad, why) in [
            (text.replace("held", "hold"), "is damaged"),
            (text[..40].to_owned(), "is damaged"),
            ("{\"version\":2}".to_owned(), "was written by a newer tranche"),
        ] {
            fs::write(file(&bed), bad).unwrap();
            let said = bed.tranche(&["plan"]);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(said.out.contains("not measured here; tranche bench 0"), "{said:?}");
            assert!(said.err.contains(why) && said.err.lines().count() == 1, "{said:?}");
        }
        // The next run writes it anew.
        run(&bed, &["--way=mps-50-50", "--beside=hog-sm", "--half"]);
        assert!(measured_here(&bed)["measured"].is_object());

        let kept: Value = serde_json::from_str(&fs::read_to_string(file(&bed)).unwrap()).unwrap();
        let driver = kept["ways"][0]["driver"].as_str().unwrap();
        fs::remove_dir_all(bed.at("host")).unwrap();
        fake_host::build_with_driver("workstation-rtx4090", "615.71.09", &bed.at("host")).unwrap();
        let said = plan(&bed);
        let why = format!("not measured here: measured with driver {driver}; tranche bench 0 measures it");
        assert!(said.contains(&why), "{said}");
    });
}

#[test]
fn status_has_one_line_for_what_did_not_hold() {
    alone(|| {
        let bed = Bed::that_cheats(&["cap"]);
        set_policy(&bed, HALVES);
        run(&bed, &["--way=mps-50-50", "--beside=hog-sm", "--half"]);
        let refreshed = bed.tranche(&["cdi", "refresh"]);
        assert_eq!(refreshed.code, Some(0), "{refreshed:?}");
        let status = bed.tranche(&["status", "--no-gpu"]);
        let lines: Vec<&str> = status
            .out
            .lines()
            .filter(|line| line.contains("measured here"))
            .collect();
        let [line] = lines[..] else { panic!("{status:?}") };
        assert!(
            line.starts_with("gpu 0: measured here 20")
                && line.contains(": compute not held (cap 50 %, seen 40 of 40 SMs"),
            "{line}"
        );
        let status: Value = serde_json::from_str(&bed.tranche(&["status", "--no-gpu", "--json"]).out).unwrap();
        assert_eq!(status["not_held"][0]["device"], "gpu 0", "{status:#}");
        assert!(plan(&bed).contains("compute not held (cap 50 %"));
    });
}
