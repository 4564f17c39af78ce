//! Which hooks are written, and which program they name.

use super::*;

#[test]
fn a_hook_that_nobody_knows_is_a_warning() {
    let plain = generate("t4x2", &[]);
    for option in ["--disable-hook", "--enable-hook"] {
        let said = generate("t4x2", &[option, "nonsense"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.out, plain.out);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.contains("nonsense"), "{}", said.err);
    }
    let said = generate("t4x2", &["--enable-hook=all"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
}

#[test]
fn enable_hook_chmod_writes_that_hook_for_the_devices_that_need_it() {
    let ours = generate("rtx4090", &["--enable-hook=chmod", "--hook-path=/usr/bin/tranche-oci"]).spec();
    for name in ["0", "all"] {
        assert_eq!(
            hooks(&device(&ours, name)["containerEdits"]),
            [["tranche-oci", "hook", "chmod", "--mode", "755", "--path", "/dev/dri"]],
            "{name}"
        );
    }
    assert!(hooks(&device(&ours, "none")["containerEdits"]).is_empty());
    let theirs = generate(
        "rtx4090",
        &["--enable-hook=chmod", "--hook-path=/usr/bin/nvidia-cdi-hook"],
    )
    .spec();
    let wanted = ["nvidia-cdi-hook", "chmod", "--mode", "755", "--path", "/dev/dri"];
    assert!(
        hooks(&device(&theirs, "0")["containerEdits"])
            .iter()
            .any(|h| h[..] == wanted)
    );
    // A MIG device has the directory of its capabilities; a GPU that has none of the two gets no hook.
    let mig = generate(
        "dgx-a100-mig",
        &["--enable-hook=chmod", "--hook-path=/usr/bin/tranche-oci"],
    )
    .spec();
    let of_mig = hooks(&device(&mig, "0:0")["containerEdits"]);
    assert!(of_mig[0].ends_with(&["--path", "/dev/nvidia-caps"]), "{of_mig:?}");
    assert_eq!(hooks(&device(&mig, "7")["containerEdits"]), Vec::<Vec<&str>>::new());
    // The usual specification has no such hook, and `--disable-hook` has no say against `--enable-hook`.
    assert!(hooks(&device(&generate("rtx4090", &[]).spec(), "0")["containerEdits"]).is_empty());
    let both = generate("rtx4090", &["--disable-hook=all", "--enable-hook=chmod"]).spec();
    assert!(hooks(&both["containerEdits"]).is_empty());
    assert_eq!(hooks(&device(&both, "0")["containerEdits"]).len(), 1);
}

#[test]
fn the_program_of_the_hook_may_be_a_bare_name() {
    let Some((directory, host)) = host("bare_name", "t4x2-old-driver") else {
        return;
    };
    let hook = directory.path().canonicalize().unwrap().join("bin/nvidia-ctk");
    program(&hook);
    let bin = hook.parent().unwrap().to_str().unwrap().to_owned();
    let written = |variables: &[(&str, &str)], name: &str| {
        let spec = with_driver_root(&host, variables, &["--hook-path", name]).spec();
        let hook = &spec["containerEdits"]["hooks"][0];
        let args = hooks(&spec["containerEdits"])[0][..2].join(" ");
        (hook["path"].as_str().unwrap().to_owned(), args)
    };
    // Where the name is nowhere, it is where packages put it.
    assert_eq!(
        written(&[], "nvidia-ctk"),
        ("/usr/bin/nvidia-ctk".to_owned(), "nvidia-ctk hook".to_owned())
    );
    assert_eq!(
        written(&[], "nvidia-cdi-hook"),
        (
            "/usr/bin/nvidia-cdi-hook".to_owned(),
            "nvidia-cdi-hook create-symlinks".to_owned()
        )
    );
    assert_eq!(
        written(&[("PATH", &format!("relative:{bin}"))], "nvidia-ctk").0,
        hook.to_str().unwrap()
    );
    for wrong in ["", "bin/nvidia-ctk", "./nvidia-ctk", ".."] {
        let option = format!("--hook-path={wrong}");
        let said = generate("t4x2", &[&option]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{wrong:?}: {}", said.err);
    }
}
