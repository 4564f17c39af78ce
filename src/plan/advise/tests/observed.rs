//! Wishes from what runs.

use crate::advise::observed::{Used, wishes};
use crate::advise::{Latency, Trust, Wishes, WorkloadKind, advise, read};
use crate::sim;
use tranche_core::error::Kind;
use tranche_core::types::MemorySize;

fn used(program: &str, holder: u32, mib: u64, busy: impl Into<Option<u32>>) -> Used {
    Used {
        program: program.to_owned(),
        holder: holder.to_string(),
        memory: Some(MemorySize::from_mib(mib)).filter(|_| mib > 0),
        busy: busy.into(),
    }
}

/// Name, kind, count and memory in MiB of each wish.
fn of(looks: &[Vec<Used>]) -> Vec<(String, WorkloadKind, u32, Option<u64>)> {
    let (wishes, seen) = wishes(looks).unwrap();
    assert_eq!(wishes.trust, Trust::Team);
    assert_eq!(seen.len(), wishes.workloads.len());
    // What is printed is a wish for a file, and the same one.
    for (seen, workload) in seen.iter().zip(&wishes.workloads) {
        let line = seen.to_string();
        let (wish, _) = line.split_once("}: ").unwrap();
        let file = read("a", &format!("wishes:\n- {wish}}}\n")).unwrap();
        let read = &file.workloads[0];
        assert_eq!(
            (&read.name, read.kind, read.count, read.memory),
            (&workload.name, workload.kind, workload.count, workload.memory)
        );
    }
    let one = |one: &crate::advise::Workload| {
        assert!(one.latency == Latency::Usual && !one.whole_gpu && one.compute.is_none());
        (
            one.name.to_string(),
            one.kind,
            one.count,
            one.memory.map(MemorySize::mib),
        )
    };
    wishes.workloads.iter().map(one).collect()
}

#[test]
fn the_kind_is_how_the_work_looked() {
    use WorkloadKind::{Notebook, Service, Training};
    let cases: [(&[Option<u32>], WorkloadKind); 7] = [
        (&[Some(98), Some(97), Some(0), Some(99), Some(100), Some(98)], Training),
        (&[Some(80)], Training),
        (&[Some(79)], Service),
        (&[Some(0), Some(0), Some(70), Some(0)], Notebook),
        (&[Some(0), Some(3)], Notebook),
        (&[Some(2), Some(3), Some(9), Some(0)], Service),
        // In MIG mode nothing is known.
        (&[None, None], Service),
    ];
    for (busy, kind) in cases {
        let looks: Vec<_> = busy.iter().map(|busy| vec![used("python3", 7, 3000, *busy)]).collect();
        assert_eq!(of(&looks)[0].1, kind, "{busy:?}");
    }
}

#[test]
fn the_most_at_the_same_time_and_the_most_memory_count() {
    let looks = [
        vec![used("b", 1, 6000, 50), used("b", 2, 100, 40), used("a", 3, 900, 99)],
        // One has ended, and another one begun.
        vec![used("b", 2, 7000, 50), used("b", 4, 100, 40)],
        vec![],
    ];
    assert_eq!(
        of(&looks),
        [
            ("training1".to_owned(), WorkloadKind::Training, 1, Some(1024)),
            ("service2".to_owned(), WorkloadKind::Service, 2, Some(7936)),
        ]
    );
    // A container with two processes.
    let parts = vec![used("a", 5, 3000, 60), used("a", 5, 2000, 60)];
    assert_eq!(
        of(&[parts]),
        [("training1".to_owned(), WorkloadKind::Training, 1, Some(5632))]
    );
    // Clients of MPS whose memory an old driver adds to that of the server.
    assert_eq!(of(&[vec![used("b", 1, 0, 1)]])[0].3, None);
}

#[test]
fn nothing_that_ran_and_too_much_of_it_are_refused_in_one_line() {
    for looks in [vec![], vec![vec![], vec![]]] {
        let error = wishes(&looks).unwrap_err();
        assert_eq!(error.kind(), Kind::Nothing);
        assert!(error.to_string().contains("no process has used one"), "{error}");
    }
    let many = (0..=Wishes::MOST).map(|number| used("a", number, 1, 1)).collect();
    let error = wishes(&[many]).unwrap_err();
    assert!(error.to_string().contains("wishes for 513 containers"), "{error}");
}

#[test]
fn hostile_names_of_programs_are_harmless() {
    let (wishes, seen) = wishes(&[vec![used("a\u{1b}[2J}: \n\u{202e}", 1, 100, 1)]]).unwrap();
    assert_eq!(wishes.workloads[0].name.to_string(), "service1");
    assert!(
        !seen[0].to_string().contains(['\u{1b}', '\n', '\u{202e}']),
        "{}",
        seen[0]
    );
}

#[test]
fn there_is_advice_for_what_runs() {
    let inventory = sim::open("rtx4090").unwrap();
    let look = vec![
        used("vllm", 1, 7000, 30),
        used("vllm", 2, 6900, 20),
        used("jupyter", 3, 900, 0),
    ];
    let (wishes, _) = wishes(&[look]).unwrap();
    let advice = advise(&wishes, &inventory, &[]).unwrap();
    assert_eq!(advice.choices.len(), 2, "{advice:#?}");
}
