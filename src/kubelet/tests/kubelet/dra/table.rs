//! How much a cluster's API server has to store and to take.

use super::divided::divided;
use super::fixtures::{devices, equal, held, mig, named, published, turns, whole};
use tranche_kubelet::dra::slices::Form;
use tranche_protocol::{DraDevice, DraDevices};

/// The GPUs of a node.
const GPUS: u32 = 8;

/// The nodes of a large cluster.
const NODES: usize = 1000;

/// How often an hour something changes on a node: a container outside Kubernetes takes a GPU, or releases it.
const CHANGES: usize = 2;

/// The numbers of one kind of node.
struct Row {
    slices: usize,
    bytes: usize,
}

fn row(all: &DraDevices, form: Form) -> Row {
    let slices = published(all, form);
    let bytes = slices
        .iter()
        .map(|slice| serde_json::to_string(slice).unwrap().len())
        .sum();
    Row {
        slices: slices.len(),
        bytes,
    }
}

#[test]
fn the_table_of_slices() {
    let gpus = |make: fn(u32) -> Vec<DraDevice>| (0..GPUS).flat_map(make).collect::<Vec<_>>();
    let kinds: [(&str, Vec<DraDevice>); 5] = [
        ("whole", gpus(|minor| vec![whole(minor)])),
        (
            "7 MIG devices",
            gpus(|minor| (7..14).map(|instance| mig(minor, instance)).collect()),
        ),
        ("10 equal, MPS", gpus(|minor| vec![equal(minor, 10)])),
        ("3 named, MPS", gpus(|minor| vec![named(minor)])),
        ("10 in turn", gpus(|minor| vec![turns(minor, 10)])),
    ];
    eprintln!("| {GPUS} GPUs | form | slices | KiB of JSON | {NODES} nodes: slices | MiB | updates an hour |");
    eprintln!("|---|---|---|---|---|---|---|");
    for (name, all) in kinds {
        for form in [Form::Full, Form::Plain] {
            let row = row(&devices(all.clone()), form);
            row.print(name, form);
            let most = if form == Form::Full { 8 } else { 16 };
            assert!(row.slices <= most, "{name}: {} slices", row.slices);
            // etcd stores at most 1.5 MiB in one object.
            assert!(row.bytes / row.slices < 1 << 18, "{name}: {} bytes", row.bytes);
            assert_updates(&all, form);
        }
    }
    let possible = DraDevices {
        divided: (0..GPUS).map(|minor| divided(minor, "h200")).collect(),
        ..devices([])
    };
    let row = row(&possible, Form::Full);
    row.print("instances of MIG on demand", Form::Full);
    assert_eq!(row.slices, 9, "one has the counters");
    assert!(row.bytes / row.slices < 1 << 18, "{} bytes", row.bytes);
}

impl Row {
    fn print(&self, name: &str, form: Form) {
        // A change of one GPU is a new generation of the pool, which each slice has.
        let updates = CHANGES * self.slices * NODES;
        let (kib, mib) = (self.bytes.div_ceil(1024), (self.bytes * NODES) >> 20);
        let (slices, total) = (self.slices, self.slices * NODES);
        eprintln!("| {name} | {form:?} | {slices} | {kib} | {total} | {mib} | {updates} |");
    }
}

/// What does not change is no update: a hold changes the slice of its GPU alone, apart from the generation.
fn assert_updates(all: &[DraDevice], form: Form) {
    let before = published(&devices(all.to_vec()), form);
    assert_eq!(before, published(&devices(all.to_vec()), form));
    let mut all = all.to_vec();
    all[0].held = vec![held(Some("0"), Some(1024), Some(1))];
    let after = published(&devices(all), form);
    let changed = before
        .iter()
        .zip(&after)
        .filter(|(a, b)| a.spec.devices != b.spec.devices)
        .count();
    assert!(changed <= 1 || before.len() != after.len(), "{changed}");
}
