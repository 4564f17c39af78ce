//! Who attacks. The table at the end of the run counts for each of them what it tried.

/// Somebody, or something, that means harm or does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The files of an image, its environment, annotations, labels and volumes.
    Image,
    /// A process in a container that has a share.
    Tenant,
    /// A user of an engine that runs as root: names, volumes, limits and arguments of a container.
    EngineUser,
    /// A user of the host who may not use an engine.
    LocalUser,
    /// A user of the host for whom the broker acts: whose programs it ends.
    ServedUser,
    /// The archive of a container that is restored.
    Checkpoint,
    /// Another program's specifications.
    OtherVendor,
    /// The driver's library.
    Driver,
    /// A kill, a full disk, a damaged file.
    Accident,
}

/// The attacks of each actor, by the beginnings of their names. The first one that fits counts; all others are of an
/// image.
const ATTACKS: [(&str, Actor); 30] = [
    ("acts::", Actor::ServedUser),
    ("bundles::nodes_and_mounts", Actor::EngineUser),
    ("bundles::a_config_that_lies", Actor::EngineUser),
    ("bundles::the_hosts_own_root", Actor::EngineUser),
    ("bundles::", Actor::Accident),
    ("claims::ids", Actor::EngineUser),
    ("claims::bundles", Actor::EngineUser),
    ("claims::a_volume_that_never_answers", Actor::EngineUser),
    ("claims::", Actor::LocalUser),
    ("conduct::the_engines_umask", Actor::EngineUser),
    ("conduct::a_start_that_fails", Actor::Accident),
    ("conduct::", Actor::Tenant),
    ("containers::an_image_that_mounts", Actor::EngineUser),
    ("limits::", Actor::EngineUser),
    ("library::", Actor::Driver),
    ("mounts::a_full_root", Actor::Accident),
    ("mounts::", Actor::EngineUser),
    ("names::in_arguments", Actor::EngineUser),
    ("names::with_a_slash", Actor::EngineUser),
    ("precreate::", Actor::Accident),
    ("propagation::", Actor::EngineUser),
    ("restored::", Actor::Checkpoint),
    ("served::", Actor::ServedUser),
    ("shim_exec::", Actor::Tenant),
    ("shim_files::", Actor::LocalUser),
    ("shim_host::a_host_file_that_does_not", Actor::Accident),
    ("shim_host::a_configuration", Actor::EngineUser),
    ("shim_host::", Actor::LocalUser),
    ("shim_killed::", Actor::Accident),
    ("specs::", Actor::OtherVendor),
];

impl Actor {
    /// Who makes the attack of this name.
    pub(crate) fn of(attack: &str) -> Self {
        ATTACKS
            .iter()
            .find(|(beginning, _)| attack.starts_with(beginning))
            .map_or(Self::Image, |(_, actor)| *actor)
    }

    /// As the table names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Image => "an image",
            Self::Tenant => "a tenant's process",
            Self::EngineUser => "a user of a root engine",
            Self::LocalUser => "a local user",
            Self::ServedUser => "a user for whom the broker acts",
            Self::Checkpoint => "a restored checkpoint",
            Self::OtherVendor => "another vendor's specification",
            Self::Driver => "the driver's library",
            Self::Accident => "an accident",
        }
    }
}
