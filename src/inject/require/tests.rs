use super::*;
use tranche_core::error::Kind;

/// A host with the given driver, CUDA, compute capability and brand; an empty text is unknown.
fn host(driver: &str, cuda: &str, arch: &str, brand: &str) -> RequirementFacts {
    RequirementFacts {
        driver: driver.parse().ok(),
        cuda: cuda.parse().ok(),
        gpus: vec![RequiredGpu {
            label: "gpu 0".to_owned(),
            arch: arch.parse().ok(),
            brand: Some(brand.to_owned()).filter(|brand| !brand.is_empty()),
        }],
    }
}

fn a100() -> RequirementFacts {
    host("535.104.05", "12.2", "8.0", "Tesla")
}

fn holds(text: &str, host: &RequirementFacts) -> bool {
    check(&[Requirement::parse("NVIDIA_REQUIRE_X", text).unwrap()], host).is_ok()
}

#[test]
fn each_operator_compares_numbers() {
    for (text, expected) in [
        ("cuda>=12.2", true),
        ("cuda>=12.3", false),
        ("cuda>12.2", false),
        ("cuda>12.1", true),
        ("cuda<=12.2", true),
        ("cuda<12.10", true),
        ("cuda<12.2", false),
        ("cuda=12.2", true),
        ("cuda=12.2.0", true),
        ("cuda=12", false),
        ("cuda!=12.2", false),
        ("cuda!=11.8", true),
        ("cuda>=12", true),
        ("cuda>=9.10", true),
        ("driver>=535", true),
        ("driver>=535.104.5", true),
        ("driver<536", true),
        ("driver>=535.104.06", false),
        ("arch>=8.0", true),
        ("arch<8", false),
        ("arch>=10.0", false),
        ("brand=tesla", true),
        ("brand=TESLA", true),
        ("brand!=tesla", false),
        ("brand=geforce", false),
        ("brand!=geforce", true),
    ] {
        assert_eq!(holds(text, &a100()), expected, "{text}");
    }
}

#[test]
fn a_space_is_or_and_a_comma_is_and() {
    for (text, expected) in [
        ("", true),
        ("cuda>=12.4 driver>=535", true),
        ("driver>=535 cuda>=12.4", true),
        ("cuda>=12.4,driver>=535", false),
        ("cuda>=12.2,driver>=535", true),
        (
            "cuda>=12.4 brand=unknown,driver>=470,driver<471 brand=tesla,driver>=535,driver<536",
            true,
        ),
        (
            "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=geforce,driver>=535,driver<536",
            false,
        ),
        ("  cuda>=12.4\t driver>=535,,", true),
        // A property that is unknown is skipped; it does not satisfy the others.
        ("umd>=1", true),
        ("umd>=1,cuda>=12.4", false),
        ("umd>=1 cuda>=12.4", false),
        ("umd>=1 cuda>=12.2", true),
    ] {
        assert_eq!(holds(text, &a100()), expected, "{text}");
    }
    // Each variable must hold.
    let both = ["cuda>=12.2", "cuda>=12.4"].map(|text| Requirement::parse("NVIDIA_REQUIRE_X", text).unwrap());
    assert!(check(&both[..1], &a100()).is_ok());
    assert!(check(&both, &a100()).is_err());
}

#[test]
fn a_condition_on_what_is_unknown_of_the_host_holds() {
    let unknown = host("", "", "", "");
    assert!(holds("cuda>=99,driver>=9999,arch>=99,brand=tesla", &unknown));
    let without_brand = host("470.82.01", "11.4", "8.0", "");
    assert!(holds("cuda>=12.4 brand=tesla,driver>=470,driver<471", &without_brand));
    assert!(!holds("cuda>=12.4 brand=tesla,driver>=450,driver<451", &without_brand));
    // Without a GPU, only the driver is checked.
    let no_gpu = RequirementFacts {
        gpus: Vec::new(),
        ..a100()
    };
    assert!(holds("arch>=99,brand=x", &no_gpu));
    assert!(!holds("cuda>=12.4", &no_gpu));
}

#[test]
fn every_gpu_must_satisfy_it() {
    let mut mixed = a100();
    mixed.gpus.push(RequiredGpu {
        label: "gpu 1".to_owned(),
        arch: "7.0".parse().ok(),
        brand: None,
    });
    assert!(holds("arch>=7.0", &mixed));
    let requirement = Requirement::parse("NVIDIA_REQUIRE_ARCH", "arch>=8.0").unwrap();
    let refused = check(&[requirement], &mixed).unwrap_err().to_string();
    assert!(refused.contains("gpu 1 with arch 7.0"), "{refused}");
}

#[test]
fn a_refusal_says_what_is_required_and_what_is_there() {
    let text = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=470,driver<471 brand=x brand=y";
    let requirement = Requirement::parse("NVIDIA_REQUIRE_CUDA", text).unwrap();
    let refused = check(&[requirement], &a100()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "NVIDIA_REQUIRE_CUDA: requires cuda>=12.4 or brand=tesla,driver>=470,driver<471 or \
         brand=nvidia,driver>=470,driver<471 or one of 2 other combinations, but this host has CUDA 12.2, driver \
         535.104.05, gpu 0 with arch 8.0 and brand tesla; update the driver, use an image for an older CUDA, or set \
         NVIDIA_DISABLE_REQUIRE=1 to start it anyway"
    );
    assert_eq!(refused.kind(), Kind::Failed);
}

#[test]
fn what_is_not_a_condition_is_refused_with_the_variable() {
    for (text, expected) in [
        ("cuda", "\"cuda\" has no operator"),
        ("cuda>=12 driver", "\"driver\" has no operator"),
        ("cuda>=", "\"cuda>=\" has no value"),
        ("brand=", "\"brand=\" has no value"),
        ("cuda>=x", "\"cuda>=x\" does not compare with a version"),
        ("cuda>=12..1", "\"cuda>=12..1\" does not compare with a version"),
        (
            "cuda>=99999999999999999999",
            "\"cuda>=99999999999999999999\" does not compare with a version",
        ),
        ("cuda=>12", "\"cuda=>12\" has an unknown operator"),
        ("cuda==12", "\"cuda==12\" has an unknown operator"),
        ("=12", "\"=12\" has no property"),
        (
            "brand>tesla",
            "\"brand>tesla\" compares a brand by another operator than = and !=",
        ),
    ] {
        let refused = Requirement::parse("NVIDIA_REQUIRE_X", text).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("NVIDIA_REQUIRE_X: {expected};")),
            "{refused}"
        );
    }
}

#[test]
fn an_old_image_requires_the_cuda_that_it_was_made_for() {
    for (version, expected) in [
        ("12.2.140", true),
        ("12.2", true),
        ("9.0.176", true),
        ("12.4.1", false),
        ("13", false),
        ("8.0.61-rc1", true),
    ] {
        let requirement = Requirement::of_cuda_version(version).unwrap();
        assert_eq!(check(&[requirement], &a100()).is_ok(), expected, "{version}");
    }
    assert_eq!(Requirement::of_cuda_version("latest"), None);
    assert_eq!(Requirement::of_cuda_version(""), None);
    let refused = check(&[Requirement::of_cuda_version("12.4.1").unwrap()], &a100()).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("CUDA_VERSION: requires cuda>=12.4, but"),
        "{refused}"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "([a-z]{0,6}(>=|<|=|!=|!|)[0-9.a-z]{0,6}[ ,]?){0,6}", other in ".{0,40}") {
        for text in [text, other] {
            if let Ok(requirement) = Requirement::parse("NVIDIA_REQUIRE_X", &text) {
                let _ = check(&[requirement], &a100());
            }
        }
    }
}
