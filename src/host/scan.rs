//! One discovery: where it looks, and what several of its parts need.

use super::findings::Findings;
use super::proc::{self, Majors};
use super::roots::Roots;
use super::tree::{Tree, is_absence};
use super::{DiscoveryOptions, platform};
use std::cell::OnceCell;
use std::fmt::Display;
use tranche_core::types::DriverVersion;
use tranche_plan::inventory::Platform;

/// One discovery.
pub(crate) struct Scan<'a> {
    pub roots: &'a Roots,
    pub options: &'a DiscoveryOptions,
    pub findings: Findings,
    pub platform: Platform,
    /// The version of the kernel module that is loaded.
    pub module: Option<DriverVersion>,
    /// The majors that the driver registered.
    pub majors: Majors,
    mig_minors: OnceCell<String>,
}

impl<'a> Scan<'a> {
    /// Begins a discovery: reads the platform, the kernel module's version and its majors.
    pub(crate) fn begin(roots: &'a Roots, options: &'a DiscoveryOptions) -> Self {
        let findings = Findings::default();
        if let Some(dev) = &roots.dev_root_note {
            findings.absent("device nodes in the driver root", [dev]);
        }
        Self {
            platform: platform::read(roots),
            module: module_version(roots, &findings),
            majors: majors(roots, &findings),
            mig_minors: OnceCell::new(),
            roots,
            options,
            findings,
        }
    }

    /// The names in the directory `dir` of `tree`, sorted. If there is no such directory, `what` is noted as absent.
    pub(crate) fn names(&self, tree: &Tree, dir: &str, what: impl Display) -> Vec<String> {
        match tree.list(dir) {
            Ok(entries) => return entries.into_iter().map(|entry| entry.name).collect(),
            Err(e) if is_absence(&e) => self.findings.absent(what, [tree.host(dir)]),
            Err(e) => self.findings.warn(tree.host(dir), format!("cannot be listed: {e}")),
        }
        Vec::new()
    }

    /// The table of the minors of MIG capabilities, as [`proc::find_minors`] takes it. The file may have tens of
    /// thousands of lines, so it is read on the first call.
    pub(crate) fn mig_minors(&self) -> &str {
        const FILE: &str = "/driver/nvidia-caps/mig-minors";
        self.mig_minors.get_or_init(|| {
            self.roots.proc.text(FILE).unwrap_or_else(|_| {
                self.findings.absent("mig-minors", [self.roots.proc.host(FILE)]);
                String::new()
            })
        })
    }
}

fn module_version(roots: &Roots, findings: &Findings) -> Option<DriverVersion> {
    let files = ["/driver/nvidia/version", "/module/nvidia/version"];
    let in_proc = roots.proc.text(files[0]).ok().and_then(|t| proc::module_version(&t));
    let found = in_proc.or_else(|| roots.sys.text(files[1]).ok()?.trim().parse().ok());
    if found.is_none() {
        let looked_in = [roots.proc.host(files[0]), roots.sys.host(files[1])];
        findings.absent("version of the kernel module", looked_in);
    }
    found
}

fn majors(roots: &Roots, findings: &Findings) -> Majors {
    match roots.proc.text("/devices") {
        Ok(text) => Majors::parse(&text),
        Err(e) => {
            let text = format!("cannot be read: {e}; the numbers of device nodes are not checked");
            findings.warn(roots.proc.host("/devices"), text);
            Majors::default()
        }
    }
}
