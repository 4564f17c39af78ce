//! From a container's state to its configuration and its root directory.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::{CONFIG_LIMIT, Config, State, unreachable};
use crate::error::{Context, Error, Result};
use crate::root::{ContainerRoot, HostDirectory};

/// A container that is being created: its configuration and its open root directory.
#[derive(Debug)]
pub struct Bundle {
    /// Its `config.json`.
    pub config: Config,
    /// Its root directory, with the runtime's mounts.
    pub root: ContainerRoot,
    /// Whether `config` comes from config.json. Otherwise it comes from the list of mounts, and the root counts as
    /// read-only.
    pub is_configured: bool,
}

/// The result of [`Bundle::find`].
#[derive(Debug)]
pub enum Reached {
    /// The container.
    Bundle(Box<Bundle>),
    /// This user may not read the bundle's configuration, and the root is not known without it, for this reason.
    Nothing(&'static str),
}

impl Reached {
    fn without_bundle() -> Reached {
        match unreachable::open() {
            Ok((config, root)) => Reached::Bundle(Bundle::new(config, root, false).into()),
            Err(why) => Reached::Nothing(why),
        }
    }
}

impl Bundle {
    /// Finds the container that `state` names.
    ///
    /// The root is `root.path` of config.json. If the state also has a path of the root (crun), that path is used,
    /// since only the runtime knows through which mount the container will see it. Both must be the same directory.
    ///
    /// If this user may not enter the bundle or read its config.json, the list of mounts is used.
    ///
    /// # Errors
    /// Returns an error if the bundle, its config.json or the root is not found, if state and config.json have
    /// different roots, or if the root is the root directory of this process.
    pub fn find(state: &State) -> Result<Reached> {
        let shown = state.bundle.display();
        let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        let bundle = match HostDirectory::open(&state.bundle) {
            Err(e) if is_denied(&e) => return Ok(Reached::without_bundle()),
            opened => opened.about(&shown, "cannot open the bundle")?,
        };
        let bytes = match bundle.read(OsStr::new("config.json"), CONFIG_LIMIT) {
            // With a strict umask, only the user of the runtime may read it.
            Err(e) if is_denied(&e) => return Ok(Reached::without_bundle()),
            read => read.about(format_args!("{shown}/config.json"), "cannot read")?,
        };
        Ok(Reached::Bundle(Bundle::open(state, &bundle, &bytes)?.into()))
    }

    /// The container of `state`, whose `bundle` has a config.json of these bytes.
    fn open(state: &State, bundle: &HostDirectory, bytes: &[u8]) -> Result<Bundle> {
        let config = Config::parse(bytes)?;
        let shown = config.root.display();
        let mut root = ContainerRoot::open(bundle, &config.root).about(&shown, "cannot open the container's root")?;
        if let Some(path) = &state.root {
            let named = ContainerRoot::open(bundle, path).about(path.display(), "cannot open the container's root")?;
            if !root
                .is_same_as(&named)
                .about(path.display(), "cannot look at the container's root")?
            {
                let what = format!("config.json has another root: {shown}");
                return Err(
                    Error::failed(path.display(), what).hint("the state and the bundle belong to two containers")
                );
            }
            root = named;
        }
        // A createContainer hook runs before the container's root becomes that of the process. The host's own root must
        // never be changed.
        if root
            .is_the_hosts()
            .about(&shown, "cannot look at the container's root")?
        {
            return Err(Error::failed(&shown, "is the host's own root directory").hint("nothing is done to it"));
        }
        Ok(Bundle::new(config, root, true))
    }

    fn new(config: Config, root: ContainerRoot, is_configured: bool) -> Bundle {
        let mounts = Arc::clone(&config.mounts);
        let root = root.with_mounts(mounts).with_label(config.mount_label.clone());
        Bundle {
            config,
            root,
            is_configured,
        }
    }
}
