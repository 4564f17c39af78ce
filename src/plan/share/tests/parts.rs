//! What a name means under a plan, and what is offered instead of one that means nothing.

use super::*;
use tranche_core::types::DevicePart;

/// What `names` ask for: GPU 0 has unequal shares, GPU 1 equal ones, 2:0 is dedicated, and 2:1 is not shared.
fn asked(names: &[&str]) -> Result<String> {
    let plan = planned(&format!("{UNEQUAL}  dedicated: {{devices: ['2:0']}}\n"));
    let inventory = host();
    let mut wish = Wish::default();
    for name in names {
        let DevicePart { device, part } = name.parse()?;
        wish.add(&plan, inventory.catalogue().get(&device)?, &part, name)?;
    }
    Ok(format!("{} of {}", wish.text(), wish.device.unwrap()))
}

#[test]
fn every_form_of_a_name_means_its_part() {
    for (names, means) in [
        (&["0.big"][..], "share big of gpu 0"),
        (&["GPU-00000000-aaaa.big", "0.mid", "0.big"], "shares big, mid of gpu 0"),
        (
            &["1.3", "nvidia.com/gpu=1.any", "0000:02:00.0.any"],
            "share 3 and 2 more of gpu 1",
        ),
        (&["2:0"], "1 share of gpu 2:0"),
        (
            &["MIG-00000000-bbbb", "MIG-GPU-00000002-aaaa/7/0"],
            "1 share of gpu 2:0",
        ),
    ] {
        assert_eq!(asked(names).unwrap(), means, "{names:?}");
    }
}

#[test]
fn a_name_that_means_nothing_is_refused_with_those_that_exist() {
    for (names, says) in [
        (
            &["0.any"][..],
            "0.any: not a share of this host; expected 0.big, 0.mid, 0.small",
        ),
        (&["0"], "0: not a share of this host; expected 0.big, 0.mid, 0.small"),
        (
            &["1.big"],
            "1.big: not a share of this host; expected 1.any, 1.0, 1.1, 1.2, 1.3 and 6 more",
        ),
        (
            &["2:0.any"],
            "2:0.any: not a share of this host; gpu 2:0 is dedicated, so it has no shares; ask for all of it: 2:0",
        ),
        (
            &["2:1.any"],
            "2:1.any: the policy does not share this device; the policy shares 2:0, 0, 1",
        ),
        (
            &["1.0", "0.big"],
            "0.big: is of another device than the first share; name shares of one device",
        ),
    ] {
        assert_eq!(asked(names).unwrap_err().to_string(), says);
    }
}
