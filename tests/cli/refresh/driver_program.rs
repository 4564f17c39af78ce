//! `tranche-driver`, which asks the driver's library: without it, or with something else in its place, a good
//! specification stays.

use super::changed::Machine;
use super::*;
use crate::support::programs;

#[test]
fn whatever_is_in_the_place_of_the_program_a_good_specification_stays() {
    let machine = Machine::new("t4x2-old-driver");
    let place = machine.bed.at("programs");
    for program in [env!("CARGO_BIN_EXE_tranche"), env!("CARGO_BIN_EXE_tranche-oci")] {
        programs::install(program, place.join(Path::new(program).file_name().unwrap()));
    }
    let driver = place.join("tranche-driver");
    programs::install(env!("CARGO_BIN_EXE_tranche-driver"), &driver);
    let refresh = || {
        let options = machine.options();
        let mut command = machine.bed.command("", &["--nvml-deadline=0.5"]);
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(place.join("tranche"));
        said(&command.args(arguments).args(options).env_clear().output().unwrap())
    };
    assert_eq!(refresh().code, Some(0));
    let before = machine.bed.files();

    let killed = "kill -KILL $$";
    let garbage = "echo garbage; exec yes";
    let silent = "exec sleep 60";
    let other = "echo '{\"hello\":\"0.0.9\"}'; exec cat";
    for (stand_in, expected) in [
        (None, "tranche-driver: not found beside this program"),
        (Some(killed), "crashed (SIGKILL)"),
        (Some(garbage), "gave an endless answer and was ended"),
        (Some(silent), "gave no answer for 0.5 s and was ended"),
        (Some(other), "tranche-driver, which is of version 0.0.9, and this is "),
    ] {
        fs::remove_file(&driver).unwrap();
        if let Some(stand_in) = stand_in {
            programs::script(&driver, stand_in);
        }
        let said = refresh();
        assert_eq!(said.code, Some(1), "{said:?}");
        let lines: Vec<&str> = said.err.lines().filter(|line| line.contains(expected)).collect();
        assert!(!lines.is_empty(), "{expected}: {said:?}");
        assert_eq!(machine.bed.files(), before, "{expected}");
        if stand_in.is_none() {
            fs::write(&driver, "").unwrap();
        }
    }
}

/// The library is loaded by one program of the host.
#[test]
fn no_other_program_of_the_host_loads_libraries() {
    let loads = |program: &str| {
        let bytes = fs::read(program).unwrap();
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
        let mut symbols = object::Object::dynamic_symbols(&file);
        symbols.any(|symbol| {
            let name = object::ObjectSymbol::name(&symbol).unwrap();
            name == "dlopen" || name == "dlmopen"
        })
    };
    assert!(loads(env!("CARGO_BIN_EXE_tranche-driver")));
    for program in [
        env!("CARGO_BIN_EXE_tranche"),
        env!("CARGO_BIN_EXE_tranche-broker"),
        env!("CARGO_BIN_EXE_tranche-oci"),
        env!("CARGO_BIN_EXE_tranche-runtime"),
    ] {
        assert!(!loads(program), "{program} imports dlopen");
    }
}
