//! The files that a refresh has to have on the disk, and what of that is new.

use super::found::FoundFiles;
use super::limit::{self, LimitedWriter, VersionLimit};
use super::options::{RefreshOptions, RefreshPlace};
use super::others::{self, OtherFiles};
use crate::digests;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tranche_core::error::{Context, Result};
use tranche_core::text::{counted, some};
use tranche_core::types::CdiVersion;
use tranche_plan::cdi::registry::{Registry, has_mark_of_refresh};
use tranche_plan::guarded::GuardedDevices;
use tranche_plan::host_file::{self, HostFile, HostSource, SourceKind};
use tranche_plan::share::Plan;
use tranche_state::replace::{FileOptions, Prepared};

/// The first specification. Those of other kinds have names that begin in the same way.
const FILE: &str = "tranche.yaml";

/// What has to be on the disk after a refresh, and what of an earlier one is there.
pub(super) struct Changes {
    /// `host.json`.
    pub(super) host_file: PathBuf,
    /// Specifications of an earlier refresh.
    pub(super) existing: Vec<PathBuf>,
    specs: Vec<WantedSpec>,
    /// `host.json` without its last sources, which are the specifications.
    content: HostFile,
    pub(super) others: OtherFiles,
    limit: Option<VersionLimit>,
}

struct WantedSpec {
    path: PathBuf,
    text: String,
    report: SpecReport,
}

/// What a refresh did, or would do.
#[derive(Debug, Serialize)]
pub struct RefreshReport {
    /// Whether any file was written or removed.
    changed: bool,
    host_file: PathBuf,
    specs: Vec<SpecReport>,
    removed: Vec<PathBuf>,
    /// The file of another program that has the plain devices, which therefore are in no file of tranche.
    plain_devices_in: Option<PathBuf>,
    /// Plain devices that are in no file at all because of that.
    lost: Vec<String>,
    /// Files with nodes of devices that are split or dedicated, each with the first such device.
    open: Vec<String>,
    /// Files of other programs that cannot be read, each with the reason.
    not_read: Vec<String>,
    /// The newest CDI version that was written, and for which engine.
    limit: Option<VersionLimit>,
    #[serde(skip)]
    dry_run: bool,
}

#[derive(Debug, Clone, Serialize)]
struct SpecReport {
    file: PathBuf,
    kind: String,
    devices: usize,
    cdi_version: CdiVersion,
    /// Whether the limit of the CDI version cost it anything.
    left_out: bool,
    changed: bool,
}

impl Changes {
    /// # Errors
    /// Returns an error if a specification cannot be made.
    pub(super) fn of(mut found: FoundFiles, options: &RefreshOptions, place: &RefreshPlace) -> Result<Self> {
        let RefreshPlace { state_dir, output_dir } = place;
        let guarded = found.sharing.as_ref().map_or_else(GuardedDevices::default, |sharing| {
            GuardedDevices::of(&sharing.plan, &sharing.held, &found.inventory)
        });
        let dirs = &found.settings.spec_dirs;
        let others = others::leave_out(&mut found.derived, dirs, output_dir, &guarded)?;
        let limit = VersionLimit::of(options.cdi_version, &found.engines);
        let first = found.derived.kind.clone();
        let host = found.origin.host;
        let plan = found.sharing.map(|sharing| sharing.plan).unwrap_or_default();
        let plan = Arc::unwrap_or_clone(plan);
        let policy = found
            .origin
            .policy
            .map_or_else(|| digests::of_plan(&Plan::default()), Ok)?;
        let writer = LimitedWriter {
            limit: limit.as_ref(),
            origin: &found.origin,
            first: &first,
        };
        let output = output_dir.join(FILE);
        let mut specs = Vec::new();
        for derived in found.derived.by_kind() {
            let file = writer.file(&output, &derived)?;
            let is_current = std::fs::read(&file.path).is_ok_and(|old| old == file.text.as_bytes());
            let report = SpecReport {
                file: file.path.clone(),
                kind: file.spec.kind.clone(),
                devices: file.spec.devices.len(),
                cdi_version: file.spec.version.parse()?,
                left_out: !file.left_out.is_empty(),
                changed: !is_current,
            };
            specs.push(WantedSpec {
                path: file.path,
                text: file.text,
                report,
            });
        }
        let current = specs.iter().filter(|spec: &&WantedSpec| !spec.report.changed);
        let current: Vec<PathBuf> = current.map(|spec| spec.path.clone()).collect();
        let mut inventory = found.inventory;
        // For people alone; without them, the runtime reads a third less.
        inventory.absent.clear();
        inventory.warnings.clear();
        let content = HostFile {
            version: host_file::VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host,
            policy,
            inventory,
            plan,
            runtime: found.settings,
            wrong_policy: found.wrong_policy,
            hook: found.hook,
            arguments: options.recorded()?,
            sources: found.sources,
        };
        Ok(Self {
            host_file: state_dir.join(host_file::NAME),
            existing: own_files(output_dir, &current),
            specs,
            content,
            others,
            limit,
        })
    }

    /// Writes what is not on the disk yet, and removes specifications of an earlier refresh that this one does not
    /// have.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written or removed. As long as the disk is full, no file is replaced.
    pub(super) fn apply(mut self, dry_run: bool) -> Result<RefreshReport> {
        let wanted = |path: &PathBuf| self.specs.iter().any(|spec| spec.path == *path);
        let removed: Vec<PathBuf> = self.existing.iter().filter(|path| !wanted(path)).cloned().collect();
        let mut prepared = Vec::new();
        for spec in &self.specs {
            let new = match spec.report.changed && !dry_run {
                true => Some(Prepared::new(&spec.path, &spec.text, &FileOptions::default())?),
                false => None,
            };
            // What is recorded of a file stays the same when it is put in its place.
            let seen = new.as_ref().map_or(spec.path.as_path(), Prepared::temporary);
            let seen = HostSource::now(SourceKind::Specification, seen);
            let path = spec.path.clone();
            self.content.sources.push(HostSource { path, ..seen });
            prepared.extend(new);
        }
        let text = self
            .content
            .text()
            .about(self.host_file.display(), "cannot be written")?;
        let is_current = std::fs::read(&self.host_file).is_ok_and(|old| old == text.as_bytes());
        let specs: Vec<SpecReport> = self.specs.into_iter().map(|spec| spec.report).collect();
        let report = RefreshReport {
            changed: !is_current || !removed.is_empty() || specs.iter().any(|spec| spec.changed),
            host_file: self.host_file,
            specs,
            removed,
            plain_devices_in: self.others.plain,
            lost: self.others.lost,
            open: self.others.open,
            not_read: self.others.not_read,
            limit: self.limit,
            dry_run,
        };
        if dry_run {
            return Ok(report);
        }
        let host_file = match is_current {
            true => None,
            false => Some(Prepared::new(&report.host_file, &text, &FileOptions::default())?),
        };
        prepared.into_iter().try_for_each(Prepared::put_in_place)?;
        remove(&report.removed)?;
        host_file.map_or(Ok(()), Prepared::put_in_place)?;
        Ok(report)
    }
}

impl RefreshReport {
    /// Whether any file was written or removed.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The report in one line.
    pub fn line(&self) -> String {
        let specs: Vec<String> = self.specs.iter().map(SpecReport::shown).collect();
        let specs = match specs.is_empty() {
            true => String::new(),
            false => format!("; {}", specs.join(", ")),
        };
        let removed: Vec<String> = self.removed.iter().map(|file| file.display().to_string()).collect();
        let removed = match (removed.is_empty(), self.dry_run) {
            (true, _) => String::new(),
            (_, true) => format!("; would remove {}", some(&removed)),
            (_, false) => format!("; removed {}", some(&removed)),
        };
        let done = match (self.changed, self.dry_run) {
            (false, _) => "is current",
            (true, true) => "would be written",
            (true, false) => "written",
        };
        let more: Vec<String> = self.clauses().iter().map(|clause| format!("; {clause}")).collect();
        format!("{}: {done}{specs}{removed}{}", self.host_file.display(), more.concat())
    }

    /// What an owner should know beyond the files.
    fn clauses(&self) -> Vec<String> {
        let mut clauses = Vec::new();
        if let Some(file) = &self.plain_devices_in {
            clauses.push(format!(
                "{} defines the plain devices, so tranche writes shares only, and a plain name of a split device takes \
                 no claim",
                file.display()
            ));
        }
        if let Some(file) = self.plain_devices_in.as_ref().filter(|_| !self.lost.is_empty()) {
            clauses.push(format!(
                "no file defines {}; tranche cdi refresh does without {}",
                some(&self.lost),
                file.display()
            ));
        }
        let open = self
            .open
            .iter()
            .map(|open| format!("{open}; an engine that reads this file asks for no claim"));
        clauses.extend(open);
        clauses.extend(self.not_read.iter().cloned());
        let files: Vec<_> = self.specs.iter().map(SpecReport::version).collect();
        clauses.extend(limit::consequences(self.limit.as_ref(), &files));
        clauses
    }
}

impl SpecReport {
    fn version(&self) -> (PathBuf, CdiVersion, bool) {
        (self.file.clone(), self.cdi_version, self.left_out)
    }

    fn shown(&self) -> String {
        let state = if self.changed { " (changed)" } else { "" };
        let devices = counted(self.devices, "device");
        format!("{} has {devices} of {}{state}", self.file.display(), self.kind)
    }
}

/// The specifications in `dir` that a refresh wrote. `current` are those of which that is known.
pub(super) fn own_files(dir: &Path, current: &[PathBuf]) -> Vec<PathBuf> {
    let is_read = |path: &Path| !current.iter().any(|one| one == path) && has_mark_of_refresh(path);
    let registry = Registry::read_only(&[dir], is_read);
    let own = registry.files().iter().map(|file| file.path.clone());
    current.iter().cloned().chain(own).collect()
}

/// Removes files, in this order.
///
/// # Errors
/// Returns an error if a file cannot be removed.
pub(super) fn remove(files: &[PathBuf]) -> Result<()> {
    let mut files = files.iter();
    files.try_for_each(|file| std::fs::remove_file(file).about(file.display(), "cannot be removed"))
}
