//! Programs that take the names of devices.

use super::ExportTarget;
use tranche_core::types::QualifiedName;

/// The lines for a program that takes CDI names; `None` for one that does not.
pub fn by_name(target: ExportTarget, names: &[QualifiedName]) -> Option<Vec<String>> {
    let each = |line: &dyn Fn(&QualifiedName) -> String| names.iter().map(line).collect();
    match target {
        // nerdctl gives names with an equals sign to CDI since version 2.0.
        ExportTarget::Nerdctl => Some(each(&|name| format!("--device {name}"))),
        ExportTarget::Quadlet => Some(
            [
                vec!["[Container]".to_owned()],
                each(&|name| format!("AddDevice={name}")),
            ]
            .concat(),
        ),
        ExportTarget::Nomad => {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let lines = [
                "config {".to_owned(),
                "  runtime = \"tranche\"".to_owned(),
                "}".to_owned(),
                "env {".to_owned(),
                format!("  NVIDIA_VISIBLE_DEVICES = \"{}\"", names.join(",")),
                "}".to_owned(),
            ];
            Some(lines.into())
        }
        ExportTarget::Apptainer | ExportTarget::Nspawn | ExportTarget::Bwrap | ExportTarget::Lxc => None,
    }
}
