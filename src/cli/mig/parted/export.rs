//! `nvidia-mig-parted export`, and `tranche mig export --mig-parted`.

use super::ViewArgs;
use super::node::Node;
use crate::out;
use anyhow::Result;
use tranche_plan::mig::mig_parted::ExportedFile;

/// The name of the configuration if nobody gives one.
pub(in crate::mig) const LABEL: &str = "current";

/// Print what the GPUs have as a configuration file
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The form of the file
    #[arg(
        short = 'o',
        long,
        env = "MIG_PARTED_OUTPUT_FORMAT",
        hide_env = true,
        default_value = "yaml"
    )]
    output_format: Format,
    /// The name of the configuration
    #[arg(short = 'l', long, value_name = "NAME", env = "MIG_PARTED_CONFIG_LABEL", hide_env = true, default_value = LABEL)]
    config_label: String,
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Yaml,
}

pub(super) fn run(args: &Args) -> Result<()> {
    export(&args.view, &args.config_label, args.output_format == Format::Json)
}

/// Prints what the GPUs have. What the form cannot say is reported on stderr.
pub(in crate::mig) fn export(at: &ViewArgs, label: &str, is_json: bool) -> Result<()> {
    let node = Node::look(at)?;
    let gpus = node.gpus();
    let file = ExportedFile::of(label, &gpus)?;
    for gpu in gpus.iter().filter_map(|gpu| gpu.divided) {
        let bare = gpu.instances.iter().filter(|one| one.compute.is_empty()).count();
        if bare > 0 {
            out::note(format!(
                "gpu {}: {bare} of its GPU instances have no compute instance, which this form cannot say; they are left out",
                gpu.index
            ));
        }
    }
    match is_json {
        true => out::json(&file),
        false => out::document(&file.yaml()?),
    }
}
