//! What a check can find: one name for each cause.

tranche_core::types::words! {
    /// A cause of trouble. Its name is in the JSON of `tranche doctor`, and does not change.
    pub enum Finding {
        /// The host has no driver.
        NoDriver = "no-driver",
        /// NVML does not answer.
        NvmlSilent = "nvml-silent",
        /// A device exists and does not answer, or lacks something.
        DeviceLost = "device-lost",
        /// The driver has no libraries.
        LibrariesMissing = "libraries-missing",
        /// The driver lacks a library that containers need.
        LibraryMissing = "library-missing",
        /// Files of the driver are gone that the last refresh found.
        FilesLost = "files-lost",
        /// The driver has no GPU.
        NoGpu = "no-gpu",
        /// The kernel module and the libraries are of different versions.
        VersionsDiffer = "versions-differ",
        /// A GPU is in MIG mode and has no instances.
        MigEmpty = "mig-empty",
        /// A change of a MIG mode waits for a reset.
        MigPending = "mig-pending",
        /// A layout of MIG was not made at boot.
        MigNotRestored = "mig-not-restored",
        /// Another warning of the examination of the host.
        HostWarning = "host-warning",
        /// A kernel module that CUDA needs is not loaded.
        ModuleNotLoaded = "module-not-loaded",
        /// A device node does not exist.
        NodeMissing = "node-missing",
        /// What has the path of a device node is not the driver's node.
        NodeWrong = "node-wrong",
        /// A link in /dev/char is missing or leads elsewhere.
        LinkMissing = "link-missing",
        /// Something that is not a link has the name of a link in /dev/char.
        LinkBlocked = "link-blocked",
        /// Every user may open the device nodes.
        NodesOpen = "nodes-open",
        /// The policy closes device nodes, and the driver opens them again.
        AccessNotInForce = "access-not-in-force",
        /// logind changes the lists of device nodes.
        AccessOfSeats = "access-of-seats",
        /// Users can open closed device nodes through docker.
        AccessByDocker = "access-by-docker",
        /// A service has closed device nodes open that its user may not open.
        AccessOfService = "access-of-service",
        /// A process has closed device nodes open without a claim.
        AccessWithoutClaim = "access-without-claim",
        /// Programs load a library of another driver than the host's.
        LibrariesMixed = "libraries-mixed",
        /// GPUs are joined by NVSwitch, and its daemon does not run.
        FabricManagerStopped = "fabric-manager-stopped",
        /// The host is in a domain of IMEX and has no channel.
        ImexChannelMissing = "imex-channel-missing",
        /// The host is in a domain of IMEX, and its daemon does not run.
        ImexDaemonStopped = "imex-daemon-stopped",
        /// No specification has a device of NVIDIA.
        SpecMissing = "spec-missing",
        /// Engines refuse a file or a directory of specifications.
        SpecInvalid = "spec-invalid",
        /// Engines do not read a file because of its name.
        SpecMisnamed = "spec-misnamed",
        /// Two files of one directory define a device.
        SpecConflict = "spec-conflict",
        /// A file of a later directory hides devices.
        SpecHidden = "spec-hidden",
        /// A specification names files or device nodes that do not exist.
        SpecFilesMissing = "spec-files-missing",
        /// A specification names a hook of tranche that cannot be started.
        SpecHookMissing = "spec-hook-missing",
        /// A specification names a hook of another program that cannot be started.
        SpecOtherHookMissing = "spec-other-hook-missing",
        /// Users cannot read a specification.
        SpecPrivate = "spec-private",
        /// A specification is older than the host or the policy.
        SpecStale = "spec-stale",
        /// Nothing keeps the specifications current.
        RefreshDisabled = "refresh-disabled",
        /// A user other than root can change what root's engines trust.
        OthersCanWrite = "others-can-write",
        /// A program that engines start cannot be executed.
        ProgramNotExecutable = "program-not-executable",
        /// There is no room for what tranche writes.
        NoRoom = "no-room",
        /// A hook needs a loader, which an image can influence.
        HookNotStatic = "hook-not-static",
        /// Users could replace the state directory of tranche, or what is in it.
        StateUnsafe = "state-unsafe",
        /// The runtime cannot use host.json until it is written again.
        HostFileOld = "host-file-old",
        /// The runtime does not use host.json, because another user could have written it, or it cannot be read.
        HostFileRefused = "host-file-refused",
        /// The runtime finds no runc or crun.
        LowLevelMissing = "low-level-missing",
        /// The policy cannot be read.
        PolicyInvalid = "policy-invalid",
        /// The shares of the policy do not fit this host.
        PolicyUnfit = "policy-unfit",
        /// The policy names a device that the host does not have.
        PolicyDeviceMissing = "policy-device-missing",
        /// The policy gives no device to anybody.
        PolicyEmpty = "policy-empty",
        /// Something in the policy has no effect, or not the one that its author may expect.
        PolicyWarning = "policy-warning",
        /// An engine does not read specifications at all.
        EngineWithoutCdi = "engine-without-cdi",
        /// An engine reads only older versions of CDI.
        EngineOutdated = "engine-outdated",
        /// CDI is turned off in an engine.
        EngineCdiOff = "engine-cdi-off",
        /// A configuration file of an engine is not valid.
        EngineConfigInvalid = "engine-config-invalid",
        /// An engine reads other directories of specifications.
        EngineDirectories = "engine-directories",
        /// An engine is installed in a snap, which keeps it from the files of the host.
        EngineInSnap = "engine-in-snap",
        /// The driver or a program of an engine is of a version with a known fault.
        KnownFault = "known-fault",
        /// NVIDIA's hook gives GPUs to containers, past the policy.
        NvidiaHook = "nvidia-hook",
        /// An engine's configuration names a runtime that does not exist.
        EngineRuntimeMissing = "engine-runtime-missing",
        /// SELinux denies containers the device nodes.
        SelinuxNodes = "selinux-nodes",
        /// Device nodes have a type that SELinux denies to containers.
        SelinuxNodeLabels = "selinux-node-labels",
        /// The SELinux module of tranche is not installed.
        SelinuxModule = "selinux-module",
        /// Directories of MPS sockets have a type that SELinux denies to containers.
        SelinuxPipeLabels = "selinux-pipe-labels",
        /// AppArmor confines programs of tranche.
        ApparmorConfines = "apparmor-confines",
        /// The kernel forbids users to make user namespaces.
        NamespacesForbidden = "namespaces-forbidden",
        /// The program that maps the ids of users does not exist.
        IdMapMissing = "id-map-missing",
        /// The program that maps the ids of users has no right to do so.
        IdMapPowerless = "id-map-powerless",
        /// The user who asks has no ids for containers of their own.
        UserWithoutIds = "user-without-ids",
        /// A part of the ledger cannot be read.
        LedgerDamaged = "ledger-damaged",
        /// The ledger as a whole cannot be used.
        LedgerUnusable = "ledger-unusable",
        /// Something is held that the policy does not provide for.
        HeldBeyondPolicy = "held-beyond-policy",
        /// A process uses a shared device without a claim.
        UseWithoutClaim = "use-without-claim",
        /// A claim uses more memory than it was promised.
        UseBeyondPromise = "use-beyond-promise",
        /// What uses the shared devices could not be determined.
        UseUnknown = "use-unknown",
        /// A GPU is in a compute mode that tranche did not set.
        ComputeModeChanged = "compute-mode-changed",
        /// A device is out of service.
        DeviceOutOfService = "device-out-of-service",
        /// It is unknown which devices are out of service.
        OutOfServiceDamaged = "out-of-service-damaged",
        /// It is unknown what is reserved for later, or what time it is.
        CalendarUnusable = "calendar-unusable",
        /// Nobody knows whether the driver suspends work on a device that is given by turns.
        TurnsNotTried = "turns-not-tried",
        /// Work is suspended, which a change of the driver would lose.
        WorkSuspended = "work-suspended",
        /// Work is suspended that another driver has suspended.
        SuspendedByOtherDriver = "suspended-by-other-driver",
        /// The broker does not run, and shares need it.
        BrokerStopped = "broker-stopped",
        /// The broker runs and does not answer as this version of tranche expects.
        BrokerRefuses = "broker-refuses",
        /// Users cannot reach the broker.
        BrokerPrivate = "broker-private",
        /// What the broker tells every user cannot be read.
        StatusDamaged = "status-damaged",
        /// An MPS daemon of tranche could not be started again.
        MpsFailed = "mps-failed",
        /// The server of a daemon does not start.
        MpsServerFailed = "mps-server-failed",
        /// A daemon was started by an earlier version of tranche.
        MpsEarlierVersion = "mps-earlier-version",
        /// Another program runs an MPS daemon for a device of tranche.
        MpsForeign = "mps-foreign",
        /// The policy leaves the MPS daemons to the operator, and one does not run.
        MpsStopped = "mps-stopped",
        /// An MPS daemon runs that tranche does not know.
        MpsUnknown = "mps-unknown",
        /// Files of an MPS daemon are left that does not run any more.
        MpsLeftOver = "mps-left-over",
    }
}

impl serde::Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
