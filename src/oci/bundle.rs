//! From a container's state to its configuration and its root directory.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::{CONFIG_LIMIT, Config, State, unreachable};
use crate::error::{Context, Error, Result};
use crate::root::{ContainerRoot, HostDirectory};

/// A container that is being made: what it was configured with, and its root directory, open.
#[derive(Debug)]
pub struct Bundle {
    /// Its `config.json`.
    pub config: Config,
    /// Its root directory, with everything that the runtime mounted in it.
    pub root: ContainerRoot,
    /// Whether `config` is what config.json says. Otherwise it is what the list of mounts says, and the root counts as
    /// read-only.
    pub is_configured: bool,
}

/// What [`Bundle::find`] found.
#[derive(Debug)]
pub enum Reached {
    /// The container.
    Bundle(Box<Bundle>),
    /// This user may not read the bundle's configuration, and the reason why the container's root is not known without
    /// it.
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
    /// The root is `root.path` of config.json. Where the runtime names it too (crun), its path is taken, since only the
    /// runtime knows through which mount the container will see it; both must be the same directory.
    ///
    /// Where this user may not enter the bundle or read its config.json, the list of mounts may tell enough.
    ///
    /// # Errors
    /// If the bundle, its config.json or the root is not there, if the two words about the root differ, or if it is the
    /// root directory of this process.
    pub fn find(state: &State) -> Result<Reached> {
        let shown = state.bundle.display();
        let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        let bundle = match HostDirectory::open(&state.bundle) {
            Err(e) if is_denied(&e) => return Ok(Reached::without_bundle()),
            opened => opened.about(&shown, "cannot open the bundle")?,
        };
        let bytes = match bundle.read(OsStr::new("config.json"), CONFIG_LIMIT) {
            // A runtime with a strict umask writes it for its own user alone.
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
        // A createContainer hook runs before the container's root becomes the process's own. What would be done to
        // the host's directories here is never what a container's user meant.
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
