//! `tranche system protect` and `tranche system unprotect`.

use crate::out;
use crate::sharing::SharingArgs;
use anyhow::{Result, bail};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use tranche_core::broker::SOCKET;
use tranche_core::error::{Error, Kind};
use tranche_host::{Roots, examine};
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::{Access, Policy};
use tranche_plan::share::Plan;
use tranche_state::access::{Enforcement, KeptNodes, ModuleOption, Opened, seat};
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::held::root_only;
use tranche_state::planning::{self, PlanOptions};

/// Close the device nodes of shared GPUs to users without a claim
///
/// For a policy with sharing.access: enforce. Gives the driver's module the option NVreg_ModifyDeviceFiles=0 by a file
/// in /etc/modprobe.d, so that programs of users do not open the nodes again. The option counts when the module is
/// loaded the next time; until then nothing is closed, and the command says so. tranche-device-nodes.service makes the
/// nodes then, because the driver does not. Root can use every GPU, as before.
#[derive(Debug, clap::Args)]
pub(crate) struct ProtectArgs {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not require tranche-device-nodes.service: this machine runs tranche system create-device-nodes at boot
    /// another way
    #[arg(long)]
    without_unit: bool,
    #[command(flatten)]
    at: SharingArgs,
}

/// Open the device nodes again that tranche system protect has closed
///
/// Removes the file in /etc/modprobe.d, and gives the nodes the owner and the mode that the driver has for them. A
/// policy with sharing.access: enforce would close them again, and is refused.
#[derive(Debug, clap::Args)]
pub(crate) struct UnprotectArgs {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: SharingArgs,
}

/// Where systemd finds the unit that makes the nodes.
const UNITS: [&str; 4] = [
    "etc/systemd/system/tranche-device-nodes.service",
    "usr/local/lib/systemd/system/tranche-device-nodes.service",
    "usr/lib/systemd/system/tranche-device-nodes.service",
    "lib/systemd/system/tranche-device-nodes.service",
];

/// The machine on which nodes are closed or opened.
struct Machine {
    options: PlanOptions,
    policy: Policy,
    inventory: Inventory,
    accounts: Accounts,
}

impl Machine {
    fn of(at: &SharingArgs) -> Result<Self> {
        let options = at.options();
        if options.host.is_here() {
            root_only::check(&options.state_dir)?;
        }
        Ok(Self {
            policy: planning::policy_in_force(&options.policy, &options.state_dir)?,
            inventory: examine::quietly(&options.host)?,
            accounts: Accounts::new(AccountSources::default()),
            options,
        })
    }

    fn root(&self) -> &Path {
        self.options.host.roots.root.as_deref().unwrap_or(Path::new("/"))
    }

    fn policy_file(&self) -> String {
        self.options.policy.path().display().to_string()
    }

    fn nodes(&self) -> KeptNodes<'_> {
        KeptNodes {
            host: &self.options.host,
            state_dir: &self.options.state_dir,
            accounts: &self.accounts,
            starting: &[],
        }
    }

    fn plan(&self) -> Result<Plan> {
        Ok(tranche_plan::share::plan(&self.policy, &self.inventory)?)
    }

    /// Names the services that run as users of their own and have nodes open which the policy closes to them: they
    /// would fail at their next start.
    fn note_services(&self) -> Result<()> {
        let proc = Roots::new(&self.options.host.roots)?.processes();
        let opened = self.nodes().opened(&proc, &self.inventory, &self.plan()?)?;
        for Opened { process, nodes } in opened.iter().filter(|opened| opened.process.is_of_system) {
            out::note(format_args!(
                "{} has {} open and will not be able to open it again; if it only watches GPUs, write sharing.monitors: \
                 {{users: [{}]}}",
                process.label(),
                tranche_core::text::some(nodes),
                process.uid
            ));
        }
        Ok(())
    }

    /// Makes the nodes what they are under the policy, and returns what is wrong with single ones.
    fn keep(&self) -> Result<Vec<Error>> {
        Ok(self.nodes().keep(&self.inventory, &self.plan()?)?)
    }
}

pub(super) fn protect(args: &ProtectArgs) -> Result<ExitCode> {
    let machine = Machine::of(&args.at)?;
    if machine.policy.access != Access::Enforce {
        bail!(
            Error::usage(
                machine.policy_file(),
                "does not say who may open device nodes, so nothing would be closed"
            )
            .hint("write sharing.access: enforce, and run tranche system protect again")
        );
    }
    if let Some(error) = machine.accounts.monitors(&machine.policy.monitors).1.into_iter().next() {
        bail!(error);
    }
    seat::check(&machine.inventory, machine.root())?;
    let option = ModuleOption::below(machine.root());
    option.check_others()?;
    if !args.without_unit && !UNITS.iter().any(|unit| machine.root().join(unit).exists()) {
        bail!(
            Error::failed(
                "tranche-device-nodes.service",
                "not found, and nothing would make the nodes at the next boot"
            )
            .hint(
                "install it from the package of tranche, or have tranche system create-device-nodes run at boot and \
                       give --without-unit"
            )
        );
    }
    machine.note_services()?;
    if args.dry_run {
        out::note(format_args!("{}: would be written", option.file().display()));
        return Ok(ExitCode::SUCCESS);
    }
    option.install()?;
    out::note(format_args!("{}: written", option.file().display()));
    let wrong = machine.keep()?;
    out::note(match Enforcement::on(&machine.options.host, Access::Enforce)? {
        Enforcement::InForce => "in force: users without a claim cannot open the nodes",
        Enforcement::NotInForce | Enforcement::Off => {
            "not in force: the driver's module was loaded without the option. Restart the machine; if its initramfs has the \
             module, run update-initramfs -u or dracut -f first"
        }
    });
    Ok(out::complain_all(&wrong))
}

pub(super) fn unprotect(args: &UnprotectArgs) -> Result<ExitCode> {
    let machine = Machine::of(&args.at)?;
    let option = ModuleOption::below(machine.root());
    if machine.policy.access == Access::Enforce {
        bail!(
            Error::usage(
                machine.policy_file(),
                "says sharing.access: enforce, by which the nodes are closed again"
            )
            .hint("write sharing.access: open, and run tranche system unprotect again")
        );
    }
    let verb = match (option.is_installed(), args.dry_run) {
        (false, _) => "does not exist",
        (true, true) => "would be removed",
        (true, false) => {
            option.remove()?;
            "removed"
        }
    };
    out::note(format_args!("{}: {verb}", option.file().display()));
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = machine.keep()?;
    Ok(out::complain_all(&wrong))
}

/// Opens all nodes and removes the option, whatever the policy says: the programs that would keep the nodes are
/// removed. Returns what is left.
///
/// # Errors
/// Returns an error if the host cannot be examined, or if the file cannot be removed.
pub(super) fn open_for_removal(options: &PlanOptions, dry_run: bool) -> Result<Vec<Error>, Error> {
    let root = options.host.roots.root.as_deref().unwrap_or(Path::new("/"));
    let option = ModuleOption::below(root);
    if option.is_installed() {
        super::prepare_removal::remove(&option.file(), dry_run)?;
    }
    let accounts = Accounts::new(AccountSources::default());
    let nodes = KeptNodes {
        host: &options.host,
        state_dir: &options.state_dir,
        accounts: &accounts,
        starting: &[],
    };
    if dry_run || !nodes.has_closed() {
        return Ok(Vec::new());
    }
    let mut left = nodes.open_all(&examine::quietly(&options.host)?)?;
    // The packages stop it before. One that was started by hand reads the same policy at its next look.
    if UnixStream::connect(options.state_dir.join(SOCKET)).is_ok() {
        let error = Error::new(Kind::Found, "broker", "still runs, and closes the device nodes again");
        left.push(error.hint("stop it, and run tranche system prepare-removal again"));
    }
    Ok(left)
}
