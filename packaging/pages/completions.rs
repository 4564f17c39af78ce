//! What shells complete: the words that an option takes, files only where a file is meant, and the names of the devices
//! and claims of this machine. Hidden options are not offered.

use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use tranche_core::types::CdiVersion;
use tranche_inspect::export::ExportTarget;
use tranche_plan::cdi::encode::Format;
use tranche_plan::derive::{Mode, NameStrategy};
use tranche_plan::engines::Engine;
use tranche_plan::inventory::DriverCapability;

/// Names that are known only when they are completed. The generator writes [`Names::placeholder`], which is then
/// replaced by what prints them.
#[derive(Clone, Copy)]
enum Names {
    /// Devices and shares, as commands of tranche take them: `0`, `0.any`.
    Devices,
    /// The same with their kinds, as engines take them.
    WithKind,
    /// Claims that were made beforehand.
    Claims,
    /// Claims, devices and shares.
    Held,
    /// Layouts of MIG.
    Layouts,
    /// Built-in inventories; files are offered, too.
    Inventories,
}

impl Names {
    const ALL: [Self; 6] = [
        Self::Devices,
        Self::WithKind,
        Self::Claims,
        Self::Held,
        Self::Layouts,
        Self::Inventories,
    ];

    fn placeholder(self) -> &'static str {
        match self {
            Self::Devices => "TRANCHE_DEVICES",
            Self::WithKind => "TRANCHE_CDI_NAMES",
            Self::Claims => "TRANCHE_CLAIMS",
            Self::Held => "TRANCHE_HELD",
            Self::Layouts => "TRANCHE_LAYOUTS",
            Self::Inventories => "TRANCHE_INVENTORIES",
        }
    }

    /// A command that prints them, one a line. It has no double quote, which shells put around it.
    fn command(self) -> &'static str {
        match self {
            Self::Devices => "tranche complete-names devices 2>/dev/null",
            Self::WithKind => "tranche cdi list 2>/dev/null",
            Self::Claims => "tranche complete-names claims 2>/dev/null",
            Self::Held => "tranche complete-names claims 2>/dev/null; tranche complete-names devices 2>/dev/null",
            Self::Layouts => "tranche complete-names layouts 2>/dev/null",
            Self::Inventories => "tranche complete-names inventories 2>/dev/null",
        }
    }
}

/// bash takes `:` and `=` for the ends of words, and names of devices, layouts and inventories have them. This joins
/// what they parted, and completes the rest of the joined word. A line with quotes is left to bash.
const JOINED: &str = r#"_tranche_joined() {
    local line="${COMP_LINE:0:COMP_POINT}" cur prev done
    if [[ "$line" == *[\'\"\\]* ]]; then
        _tranche "$@"
        return
    fi
    local -a COMP_WORDS
    read -ra COMP_WORDS <<< "$line"
    [[ "$line" == *' ' ]] && COMP_WORDS+=("")
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    cur="${COMP_WORDS[COMP_CWORD]}"
    prev="${COMP_WORDS[COMP_CWORD - 1]}"
    if [[ "$cur" == --*=* ]]; then
        prev="${cur%%=*}"
        cur="${cur#*=}"
        COMP_WORDS[COMP_CWORD]="$prev"
        COMP_WORDS+=("$cur")
        COMP_CWORD=$((COMP_CWORD + 1))
    fi
    _tranche "$1" "$cur" "$prev"
    done="${cur%"${cur##*[:=]}"}"
    [[ "$COMP_WORDBREAKS" == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"$done"}")
}

"#;

/// The completions of `command` for `shell`.
pub(super) fn of(command: &Command, shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut offered(command), "tranche", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    for names in Names::ALL {
        let (placeholder, prints) = (names.placeholder(), names.command());
        text = match shell {
            Shell::Zsh => {
                let function = format!("_{}", placeholder.to_lowercase());
                let files = if matches!(names, Names::Inventories) {
                    "; _files"
                } else {
                    ""
                };
                let body = format!("{function}() {{ compadd -- ${{(f)\"$({prints})\"}}{files} }}\n");
                let text = text.replace(&format!("({placeholder})"), &function);
                text.replacen("#compdef tranche\n", &format!("#compdef tranche\n\n{body}"), 1)
            }
            Shell::Fish => {
                let files = match names {
                    Names::Inventories => "; __fish_complete_path (commandline -ct)",
                    _ => "",
                };
                text.replace(&format!("{placeholder}\\t''"), &format!("({prints}{files})"))
            }
            _ => text.replace(placeholder, &format!("$({prints})")),
        };
    }
    if shell == Shell::Bash {
        text = text.replace("complete -F _tranche ", "complete -F _tranche_joined ");
        text.insert_str(0, JOINED);
    }
    text.into_bytes()
}

/// `command` without what is hidden, and with what each option takes.
fn offered(command: &Command) -> Command {
    // The program ends soon, and clap wants names that last as long as it does.
    let mut offered = Command::new(&*command.get_name().to_owned().leak());
    if let Some(about) = command.get_about() {
        offered = offered.about(about.clone());
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    offered
        .args(arguments.map(|argument| with_values(command.get_name(), argument)))
        .subcommands(verbs.map(self::offered))
}

/// `argument` of the command `verb` with what it takes.
fn with_values(verb: &str, argument: &Arg) -> Arg {
    let none = || Resettable::Reset;
    // What they exclude may be hidden.
    let argument = argument
        .clone()
        .conflicts_with(none())
        .requires(none())
        .required_unless_present(none());
    if !argument.get_action().takes_values() || !argument.get_possible_values().is_empty() {
        return argument;
    }
    fn words<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Vec<&'static str> {
        all.iter().copied().map(word).collect()
    }
    let id = argument.get_id().as_str().to_owned();
    let value = argument
        .get_value_names()
        .and_then(|names| names.first())
        .map(ToString::to_string);
    let words: Vec<&'static str> = match (verb, id.as_str()) {
        (_, "mode") => words(Mode::ALL, Mode::as_str),
        (_, "format") => words(&[Format::Yaml, Format::Json], Format::extension),
        (_, "relative_to") => vec!["host", "container"],
        (_, "runtime") => words(Engine::ALL, Engine::as_str),
        (_, "target") => words(ExportTarget::ALL, ExportTarget::as_str),
        (_, "cdi_version") => words(CdiVersion::ALL, CdiVersion::as_str),
        (_, "device_name_strategies") => words(NameStrategy::ALL, NameStrategy::as_str),
        (_, "driver_capabilities") => ["all"]
            .into_iter()
            .chain(words(DriverCapability::ALL, DriverCapability::as_str))
            .collect(),
        ("inspect", "names") => vec![Names::WithKind.placeholder()],
        ("show", "name") | ("run", "claim") => vec![Names::Claims.placeholder()],
        ("release" | "suspend" | "resume", "what") => vec![Names::Held.placeholder()],
        (_, "layouts") => vec![Names::Layouts.placeholder()],
        (_, "inventory") => vec![Names::Inventories.placeholder()],
        (_, "device_ids") => vec![Names::Devices.placeholder()],
        _ if matches!(value.as_deref(), Some("DEVICE" | "DEVICE.SHARE")) => vec![Names::Devices.placeholder()],
        _ => Vec::new(),
    };
    if !words.is_empty() {
        return argument.value_parser(PossibleValuesParser::new(words));
    }
    argument.value_hint(match value.as_deref() {
        Some("DIR") => ValueHint::DirPath,
        Some("FILE" | "PATH" | "ENGINE") => ValueHint::FilePath,
        Some("PROGRAM") => ValueHint::CommandWithArguments,
        _ => ValueHint::Other,
    })
}
