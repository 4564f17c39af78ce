//! Runs that come to their end.

use crate::bed::{Bed, Said, alone};
use serde_json::Value;

/// The cell of this way beside this neighbour, at half of the load.
fn cell<'r>(results: &'r Value, way: &str, neighbour: &str) -> &'r Value {
    let is_it = |cell: &&Value| {
        let cell = &cell["cell"];
        cell["way"] == way && cell["neighbour"] == neighbour && cell["load"] == 50
    };
    results["cells"].as_array().unwrap().iter().find(is_it).unwrap()
}

/// What became of a guarantee of the first share of a way.
pub(crate) fn verdict(results: &Value, way: &str, of: &str) -> (String, String) {
    let of_way = |one: &&Value| one["way"] == way;
    let way = results["ways"].as_array().unwrap().iter().find(of_way).unwrap();
    let verdicts = way["shares"][0]["verdicts"].as_array().unwrap();
    let found = verdicts.iter().find(|one| one["of"] == of).unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("outcome"), text("figure"))
}

pub(crate) fn run(bed: &Bed, arguments: &[&str]) -> (Value, String) {
    let said: Said = bed
        .bench(1, &[arguments, &["--json"]].concat())
        .output()
        .unwrap()
        .into();
    assert_eq!(said.code, Some(0), "{said:?}");
    (serde_json::from_str(&said.out).unwrap(), said.err)
}

#[test]
fn a_run_measures_and_leaves_everything_as_it_was() {
    alone(|| {
        let bed = Bed::new();
        let arguments = [
            "--way=ts2",
            "--way=mps-50-50",
            "--beside=hog-sm",
            "--beside=fault",
            "--half",
        ];
        let (results, said) = run(&bed, &arguments);
        bed.assert_as_it_was();
        // An idle machine serves at half of its capacity as quickly as queueing says.
        let alone = cell(&results, "solo", "idle");
        assert!(alone["requests"].as_u64() > Some(50) && alone["late"] == 0, "{alone}");
        // Long kernels of a neighbour keep requests waiting where turns are taken, and not beside a ceiling.
        let slowdown = |way| {
            cell(&results, way, "hog-sm")["slowdown_p99"]["median"]
                .as_f64()
                .unwrap()
        };
        assert!(slowdown("ts2") > 4.0, "{results:#}");
        // A fault ends the neighbour under MPS alone.
        assert_eq!(verdict(&results, "ts2", "faults").0, "held", "{results:#}");
        let (outcome, figure) = verdict(&results, "mps-50-50", "faults");
        assert!(
            outcome == "nothing promised" && figure.contains("after the neighbour's fault"),
            "{figure}"
        );
        // A ceiling of half of the multiprocessors is one.
        let (outcome, figure) = verdict(&results, "mps-50-50", "compute");
        assert!(
            outcome == "held" && figure.contains("seen 20 of 40 SMs"),
            "{outcome}: {figure}"
        );
        // The person reads how long it takes, and which cell is measured.
        assert!(
            said.contains("the results are indicative") && said.contains("mps-50-50 beside fault: "),
            "{said}"
        );
        assert!(said.lines().count() > 8, "{said}");
        assert!(!said.contains("tranche-load: ") && !said.contains("WARN"), "{said}");
    });
}

#[test]
fn a_gpu_that_cheats_is_found() {
    alone(|| {
        for (cheat, neighbour, of) in [("cap", "hog-sm", "compute"), ("memory", "greedy", "memory")] {
            let bed = Bed::that_cheats(&[cheat]);
            let (results, _) = run(&bed, &["--way=mps-50-50", "--beside", neighbour, "--half"]);
            let (outcome, figure) = verdict(&results, "mps-50-50", of);
            assert_eq!(outcome, "not held", "{cheat}: {figure}");
            bed.assert_as_it_was();
        }
    });
}
