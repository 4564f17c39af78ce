//! File systems below a container that are not as simple as a directory: layers that hold only the metadata of a file,
//! and a volume whose server never answers.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::owns_machine;
use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::VERBS;

/// The root as an overlay whose upper layer has the mode of a file and not its content, as an engine's storage may have
/// it.
const METACOPY: &str = r#"mkdir "$lists/upper" "$lists/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$lists/upper,workdir=$lists/work,metacopy=on,redirect_dir=on" "$root" || exit 98
find "$root" -xdev -type f -exec chmod o+x {} +"#;

#[test]
fn an_overlay_with_metadata_alone() {
    // In a user namespace, the kernel mounts no overlay of this kind.
    if !owns_machine("an_overlay_with_metadata_alone") {
        return;
    }
    Attack::new(
        "file_systems::an_overlay_with_metadata_alone",
        "the root is an overlay whose upper layer has only the metadata of files, and a component is a link to the host",
    )
    .run(|trial| {
        for verb in VERBS {
            let mut harmless = Stage::new(verb);
            trial.twin(&harmless);
            harmless.before = METACOPY.to_owned();
            harmless.keeps_image = true;
            trial.attack(&format!("{} on an overlay", verb.name), &harmless);
            for component in verb.components() {
                let mut stage = Stage::new(verb);
                stage.link(component, stage.host(component));
                stage.before = METACOPY.to_owned();
                // What is written goes to the upper layer. The image below it stays.
                stage.keeps_image = true;
                trial.attack(&format!("{} on an overlay, {component} is a link", verb.name), &stage);
            }
        }
    });
}

/// A FUSE volume whose server never answers. When the handle is closed, the kernel ends every request with an error.
pub(crate) struct SilentVolume {
    at: PathBuf,
    server: Option<File>,
}

impl SilentVolume {
    pub(crate) fn mount(at: &Path) -> nix::Result<Self> {
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            server.as_raw_fd()
        );
        mount(
            Some("silent"),
            at,
            Some("fuse"),
            MsFlags::empty(),
            Some(options.as_str()),
        )?;
        Ok(Self {
            at: at.to_owned(),
            server: Some(server),
        })
    }

    pub(crate) fn end(&mut self) {
        drop(self.server.take());
    }
}

impl Drop for SilentVolume {
    fn drop(&mut self) {
        self.end();
        umount2(&self.at, MntFlags::MNT_DETACH).unwrap();
    }
}
