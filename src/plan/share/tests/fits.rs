//! Which parts a wish gets.

use super::*;
use tranche_core::types::Selection;

fn fits(yaml: &str, wish: Wish, held: &[&str]) -> Result<Fit> {
    let plan = planned(yaml);
    fit(&plan, &wish, &Held(held))
}

/// The shares that are held: `0.big`, `1.3`.
struct Held<'a>(&'a [&'a str]);

impl Holds for Held<'_> {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        !self.0.contains(&format!("{}.{name}", split.device.cdi_name()).as_str())
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        let of_it = format!("{}.", split.device.cdi_name());
        let names = self.0.iter().filter_map(|held| held.strip_prefix(&of_it));
        names.map(|name| name.parse().unwrap()).collect()
    }
}

/// The GPUs of which something is free.
struct FreeGpus<'a>(&'a dyn Fn(u32) -> bool);

impl Holds for FreeGpus<'_> {
    fn is_free(&self, split: &SplitDevice, _: &ShareName) -> bool {
        self.0(split.device.gpu.0)
    }

    fn named(&self, _: &SplitDevice) -> Vec<ShareName> {
        Vec::new()
    }
}

fn names(fit: &Fit) -> String {
    let names: Vec<_> = fit.shares.iter().map(ShareName::as_str).collect();
    format!("{}.{}", fit.device.cdi_name(), names.join("+"))
}

#[test]
fn the_best_fit_leaves_least() {
    let memory = |gib: u64| Wish {
        memory: Some(MemorySize::from_mib(gib * 1024)),
        ..Wish::default()
    };
    // 7 GiB: three tenths of 24 GiB leave 0.2 GiB, the small share 1 GiB.
    assert_eq!(names(&fits(UNEQUAL, memory(7), &[]).unwrap()), "1.0+1+2");
    assert_eq!(names(&fits(UNEQUAL, memory(8), &[]).unwrap()), "0.small");
    assert_eq!(names(&fits(UNEQUAL, memory(8), &["0.small"]).unwrap()), "1.0+1+2+3");
    assert_eq!(names(&fits(UNEQUAL, memory(45), &[]).unwrap()), "0.big+small");
    let e = fits(UNEQUAL, memory(70), &["0.small"]).unwrap_err().to_string();
    assert_eq!(
        e,
        "70.0 GiB: no device of the policy can give it, even if nothing is held; gpu 0 has 3 shares, 68.0 GiB, 100%; \
         gpu 1 has 10 shares, 23.9 GiB, 100%"
    );
    let e = fits(UNEQUAL, memory(61), &["0.small"]).unwrap_err();
    assert_eq!(e.kind(), tranche_core::error::Kind::Failed);
    assert_eq!(
        e.to_string(),
        "61.0 GiB: no device can give it now; gpu 0 has 2 of 3 shares free, 60.0 GiB, 90%; gpu 1 has 10 of 10 shares free, 23.9 GiB, 100%"
    );
}

#[test]
fn shares_by_number_of_a_device() {
    let wish = Wish {
        shares: Some(3),
        device: Some(Device {
            gpu: GpuIndex(1),
            mig: None,
        }),
        ..Wish::default()
    };
    let found = fits(UNEQUAL, wish.clone(), &["1.0", "1.2"]).unwrap();
    assert_eq!(
        (names(&found).as_str(), found.compute),
        ("1.1+3+4", Some(Percent::of_sum(30)))
    );
    let one = UNEQUAL.replace("mps:\n", "mps:\n    failRequestsGreaterThanOne: true\n");
    assert!(
        fits(&one, wish.clone(), &[])
            .unwrap_err()
            .to_string()
            .contains("one a claim")
    );
    let none = Wish {
        device: Some(Device {
            gpu: GpuIndex(2),
            mig: None,
        }),
        ..wish
    };
    assert!(
        fits(UNEQUAL, none, &[])
            .unwrap_err()
            .to_string()
            .starts_with("gpu 2: no device that is split")
    );
}

#[test]
fn what_has_no_limit_serves_no_wish_for_memory() {
    let ts = "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
    let memory = Wish {
        memory: Some(MemorySize::from_mib(1)),
        ..Wish::default()
    };
    let compute = Wish {
        compute: Some(Percent::of_sum(10)),
        ..Wish::default()
    };
    // Waiting for it is in vain, also if shares are held now.
    for (wish, held, says) in [
        (
            &memory,
            &[][..],
            "1 MiB: no device of the policy can give it, even if nothing is held; gpu 0 has 4 shares, without a limit of memory",
        ),
        (&memory, &["0.0", "0.1", "0.2", "0.3"], "without a limit of memory"),
        (
            &compute,
            &[],
            "10% compute: no device of the policy can give it, even if nothing is held; gpu 0 has 4 shares, without a limit of compute",
        ),
        (
            &Wish::shares(5),
            &[],
            "5 shares: no device of the policy can give it, even if nothing is held; gpu 0 has 4 shares",
        ),
    ] {
        let error = fits(ts, wish.clone(), held).unwrap_err();
        assert_eq!(error.kind(), tranche_core::error::Kind::Usage, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(names(&fits(ts, Wish::default(), &["0.0"]).unwrap()), "0.1");
}

#[test]
fn shares_by_name_with_more_of_the_same_device() {
    let wish = |text: &str, shares| Wish {
        names: text.split_whitespace().map(|name| name.parse().unwrap()).collect(),
        shares,
        ..Wish::default()
    };
    let of = |wish: Wish, held: &[&str]| fits(UNEQUAL, wish, held).map(|found| names(&found));
    assert_eq!(of(wish("mid", None), &[]).unwrap(), "0.mid");
    assert_eq!(of(wish("small mid", None), &["0.big"]).unwrap(), "0.mid+small");
    // 0.3 and twice 0.any: exactly three shares.
    assert_eq!(of(wish("3", Some(2)), &["1.0"]).unwrap(), "1.1+2+3");
    assert_eq!(of(wish("3", Some(0)), &[]).unwrap(), "1.3");
    let held = of(wish("3", None), &["1.3"]).unwrap_err().to_string();
    assert!(
        held.starts_with("share 3: no device can give it now; gpu 0 has 3 of 3"),
        "{held}"
    );
    assert!(of(wish("3", Some(10)), &[]).is_err(), "there are nine others");
    // No device has both.
    let unknown = of(wish("big 3", None), &[]).unwrap_err();
    assert_eq!(
        (unknown.kind(), unknown.to_string().as_str()),
        (
            tranche_core::error::Kind::Usage,
            "shares big, 3: not found; these devices have big, 0, 1, 2, 3 and 8 more"
        )
    );
    // Named shares count for a size, and no more than needed are added to them.
    let sized = |text, gib: u64| Wish {
        memory: Some(MemorySize::from_mib(gib * 1024)),
        ..wish(text, None)
    };
    assert_eq!(of(sized("big", 30), &[]).unwrap(), "0.big");
    assert_eq!(of(sized("big", 45), &[]).unwrap(), "0.big+small");
    assert_eq!(of(sized("small", 48), &["0.mid"]).unwrap(), "0.big+small");
    let one = UNEQUAL.replace("mps:\n", "mps:\n    failRequestsGreaterThanOne: true\n");
    assert!(fits(&one, wish("3", Some(1)), &[]).is_err());
    assert_eq!(names(&fits(&one, wish("3", None), &[]).unwrap()), "1.3");
}

/// With the policy's `placement`, four claims of one share on two equal devices.
#[test]
fn shares_are_packed_onto_one_device_or_spread_over_all() {
    let yaml = |placement: &str| {
        format!(
            "version: v1\nsharing:\n  placement: {placement}\n  timeSlicing:\n    resources:\n    - {{name: \
             nvidia.com/gpu, replicas: 3}}\n"
        )
    };
    let taken = |placement: &str| {
        let mut held: Vec<String> = Vec::new();
        for _ in 0..4 {
            let refs: Vec<&str> = held.iter().map(String::as_str).collect();
            let found = fits(&yaml(placement), Wish::shares(1), &refs).unwrap();
            held.push(names(&found));
        }
        held
    };
    assert_eq!(taken("packed"), ["0.0", "0.1", "0.2", "1.0"]);
    assert_eq!(taken("spread"), ["0.0", "1.0", "0.1", "1.1"]);
    // Whichever device has something held is the one that is packed.
    assert_eq!(names(&fits(&yaml("packed"), Wish::shares(1), &["1.0"]).unwrap()), "1.1");
    assert_eq!(names(&fits(&yaml("spread"), Wish::shares(1), &["0.0"]).unwrap()), "1.0");
}

#[test]
fn of_whole_devices_the_smallest_that_serves_is_taken() {
    let mut plan = planned("version: v1\nsharing: {dedicated: {devices: [0, 1]}}\n");
    let gib = |gib: u64| Some(MemorySize::from_mib(gib * 1024));
    (plan.devices[0].memory, plan.devices[1].memory) = (gib(80), gib(40));
    let of = |select: &str, is_free: &dyn Fn(u32) -> bool| {
        let select = if select.is_empty() {
            Selection::default()
        } else {
            select.parse().unwrap()
        };
        fit(&plan, &Wish::whole(select), &FreeGpus(is_free)).map(|found| found.device.gpu.0)
    };
    assert_eq!(of("", &|_| true).unwrap(), 1);
    assert_eq!(of("", &|gpu| gpu == 0).unwrap(), 0);
    assert_eq!(of("memory>=41Gi", &|_| true).unwrap(), 0);
    let error = of("memory>=41Gi", &|gpu| gpu == 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "a whole device with memory>=41Gi: no device can give it now; gpu 0 is held"
    );
    let error = of("memory>=81Gi", &|_| true).unwrap_err().to_string();
    assert!(
        error.starts_with("selection: memory>=81Gi matches no device of the policy; gpu 0 is a "),
        "{error}"
    );
}

/// As many as nobody could list: the time and the memory of a plan and of a choice do not depend on it.
#[test]
fn any_number_of_replicas_is_a_count() {
    let many = u32::MAX - 1;
    let yaml = format!("sharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, replicas: {many}}}\n");
    let plan = planned(&yaml);
    let split = &plan.devices[0];
    assert_eq!((split.replicas(), split.shares.len()), (many, many as usize));
    let last = ShareName::replica(many - 1);
    assert_eq!(split.share(&last), split.replica());
    assert_eq!(split.share(&ShareName::replica(many)), None);
    assert_eq!(split.share(&"007".parse().unwrap()), None);
    assert_eq!(
        plan.named_shares(split).count(),
        0,
        "any alone is written into a specification"
    );
    assert!(serde_json::to_string(&plan).unwrap().len() < 20_000);

    let of = |shares, held: &[&str]| {
        let wish = Wish {
            device: Some(split.device),
            ..Wish::shares(shares)
        };
        fit(&plan, &wish, &Held(held)).map(|fit| names(&fit))
    };
    assert_eq!(of(3, &["0.0", "0.2"]).unwrap(), "0.1+3+4");
    let last = Wish {
        device: Some(split.device),
        names: vec![last],
        ..Wish::default()
    };
    let held = format!("0.{}", many - 1);
    assert_eq!(fit(&plan, &last, &Held(&[])).unwrap().shares, last.names);
    let refused = fit(&plan, &last, &Held(&[&held])).unwrap_err().to_string();
    assert!(
        refused.contains("gpu 0 has 4294967293 of 4294967294 shares free"),
        "{refused}"
    );

    let free = split.free(&Held(&["0.1"]));
    assert_eq!(
        (free.len(), free.listed().len()),
        (many as usize - 1, Shares::MOST_LISTED)
    );
    assert_eq!(free.listed()[..2], [ShareName::replica(0), ShareName::replica(2)]);
}
