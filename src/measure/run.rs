//! Runs the cells of an agenda, one after another.

use crate::calibration::Calibrated;
use crate::guarded::Guarded;
use crate::site::{AFTER, LEAD, Site};
use crate::tenant::Tenant;
use crate::{clock, layout, load};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use tranche_bench::cell::{Agenda, Cell, Length, Neighbour};
use tranche_bench::event::Event;
use tranche_bench::measured::Measured;
use tranche_bench::progress::progress;
use tranche_bench::results::{Recorded, RecordedWay, Results};
use tranche_bench::schedule::{Window, arrivals, input, mean_gap};
use tranche_bench::way::{Allowed, RefusedWay, Seat, Setup, Way};
use tranche_core::error::{Error, Result, line};
use tranche_core::types::DeviceKey;
use tranche_state::planning::PlanOptions;

/// For how long each neighbour works alone.
const ALONE: Length = Length {
    measure_s: 1,
    warm_up_s: 1,
    repeats: 1,
    most_s: 3,
};

/// What is measured, and how.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The machine.
    pub at: PlanOptions,
    /// The device, as a person names it.
    pub device: String,
    /// What may be changed for a while.
    pub allowed: Allowed,
    /// How thoroughly.
    pub length: Length,
    /// Only these ways; empty for all that are possible.
    pub ways: Vec<Way>,
    /// Only beside these neighbours, and alone; empty for all.
    pub neighbours: Vec<Neighbour>,
    /// Only at these loads, in percent; empty for all.
    pub loads: Vec<u32>,
    /// The program that loads the device; `None` for the one of this installation.
    pub load: Option<PathBuf>,
    /// The machine in words that a person chose.
    pub machine: String,
    /// The day.
    pub date: String,
    /// The seed of the requests.
    pub seed: u64,
}

/// A run that can begin. Nothing was changed yet.
pub struct Run {
    options: RunOptions,
    site: Site,
    setups: Vec<Setup>,
    refused: Vec<RefusedWay>,
    agenda: Agenda,
}

impl Run {
    /// Looks at the machine.
    ///
    /// # Errors
    /// Returns why nothing can be measured: the device is unknown or in use, or no way of sharing it is possible.
    pub fn new(options: RunOptions) -> Result<Self> {
        let site = Site::find(&options.at, &options.device, options.load.as_ref())?;
        let device = &site.device;
        let (mut possible, mut refused) = device.setups(options.allowed)?;
        let is_asked = |way: Way| options.ways.is_empty() || way == Way::Solo || options.ways.contains(&way);
        possible.retain(|setup| is_asked(setup.way));
        refused.retain(|one| is_asked(one.way));
        if let Some(RefusedWay { way, why }) = refused.iter().find(|one| options.ways.contains(&one.way)) {
            return Err(Error::failed(
                &options.device,
                format!("cannot be shared by {way}: {why}"),
            ));
        }
        let ways: Vec<Way> = possible.iter().map(|setup| setup.way).collect();
        if !ways.contains(&Way::Solo) {
            let why = refused.first().map_or_else(String::new, |one| one.why.clone());
            return Err(Error::failed(&options.device, format!("cannot be measured: {why}")));
        }
        site.program()?;
        let mut agenda = Agenda::new(&ways, options.length);
        // What the others are compared with is measured always.
        let is_beside = |cell: &Cell| {
            cell.neighbour == Neighbour::Idle
                || options.neighbours.is_empty()
                || options.neighbours.contains(&cell.neighbour)
        };
        let is_load = |cell: &Cell| options.loads.is_empty() || options.loads.contains(&cell.load);
        let is_asked = |cell: &Cell| is_load(cell) && is_beside(cell);
        agenda.cells.retain(is_asked);
        agenda.left_out.retain(is_asked);
        Ok(Self {
            agenda,
            site,
            setups: possible,
            refused,
            options,
        })
    }

    /// The device's key in the ledger.
    pub fn device(&self) -> &DeviceKey {
        &self.site.device.key
    }

    /// What a person reads before the run.
    pub fn text(&self) -> String {
        let mut text = self.agenda.text();
        for RefusedWay { way, why } in &self.refused {
            text.push_str(&format!("not measured: {way}: {why}\n"));
        }
        text
    }

    /// Measures, has everything put back, and looks whether it is. `say` gets a line about each cell when it begins. It
    /// ends early when `stop` can be read.
    ///
    /// # Errors
    /// Returns why nothing could be measured. A cell that fails has no figures, and the reason.
    pub fn run(&self, mut guarded: Guarded, stop: BorrowedFd<'_>, say: &mut dyn FnMut(&str)) -> Result<Results> {
        let recorded = self.record(stop, say);
        let put_back = guarded.end();
        let mut recorded = recorded?;
        recorded.leftovers = put_back.err().iter().map(|error| line(error)).collect();
        match self.site.device.leftovers() {
            Ok(leftovers) => recorded.leftovers.extend(leftovers),
            Err(error) => recorded.leftovers.push(line(&error)),
        }
        Ok(Results::new(recorded))
    }

    fn record(&self, stop: BorrowedFd<'_>, say: &mut dyn FnMut(&str)) -> Result<Recorded> {
        let alone = self.set_up(Way::Solo)?;
        let seat = alone.seats.first().ok_or_else(|| self.site.failed("has no share"))?;
        say("calibration");
        let calibrated = Calibrated::of(&self.site, seat)?;
        let mut recorded = Recorded {
            program: tranche_core::types::PROGRAM_VERSION.to_string(),
            date: self.options.date.clone(),
            host: self
                .site
                .device
                .host(&self.options.machine, Some(calibrated.ready.sms))?,
            length: self.options.length,
            seed: self.options.seed,
            request_ns: calibrated.request_ns,
            alone: self.neighbours_alone(seat, &calibrated, stop)?,
            ways: Vec::new(),
            cells: Vec::new(),
            refused: self.refused.clone(),
            left_out: self.agenda.left_out.clone(),
            leftovers: Vec::new(),
        };
        for cells in self.agenda.cells.chunk_by(|one, next| one.way == next.way) {
            let Some(Cell { way, .. }) = cells.first() else {
                continue;
            };
            let setup = match self.set_up(*way) {
                Ok(setup) => setup,
                Err(error) => {
                    let failed = cells.iter().map(|cell| (*cell, Err(line(&error))));
                    recorded.cells.extend(failed);
                    continue;
                }
            };
            let mut way = self.look_at(&setup);
            for cell in cells {
                say(&progress(&self.agenda, recorded.cells.len(), 0));
                let measured = self.measure_all(&mut way, *cell, &calibrated, stop)?;
                recorded.cells.push((*cell, measured));
            }
            recorded.ways.push(way);
        }
        Ok(recorded)
    }

    /// Measures a cell as often as it has to be, or says why it cannot be measured.
    ///
    /// # Errors
    /// Returns an error if somebody ends the run.
    fn measure_all(
        &self,
        way: &mut RecordedWay,
        cell: Cell,
        calibrated: &Calibrated,
        stop: BorrowedFd<'_>,
    ) -> Result<Result<Vec<Measured>, String>> {
        let mut all = Vec::new();
        for repeat in 0..self.options.length.repeats {
            let seed = self.options.seed.wrapping_add(u64::from(repeat));
            match self.measure(&way.setup, cell, calibrated, seed, stop) {
                Ok((one, seen)) => {
                    way.context_ns.extend(seen.context_ns);
                    way.mps_server_mib = way.mps_server_mib.max(seen.mps_server_mib);
                    all.push(one);
                }
                Err(Ended::ByPerson(error)) => return Err(error),
                Err(Ended::ByFailure(error)) => return Ok(Err(line(&error))),
            }
        }
        Ok(Ok(all))
    }

    /// Gives the device the layout and the policy of a way.
    fn set_up(&self, way: Way) -> Result<Setup> {
        let Site { device, room, .. } = &self.site;
        let allowed = self.options.allowed;
        let mut setup = match allowed.layout {
            false => self.setups.iter().find(|setup| setup.way == way).cloned(),
            // The instances of an earlier way may be there.
            true => Some(device.setup_now(way, allowed)?),
        };
        if let Some(layout) = setup.as_ref().and_then(|setup| setup.layout.as_ref()) {
            layout::apply(room, device, layout)?;
            // Its instances have names now.
            setup = Some(device.setup_now(way, allowed)?);
        }
        let setup = setup.ok_or_else(|| self.site.failed("is not set up"))?;
        room.set_policy(&setup.policy)?;
        Ok(setup)
    }

    /// What each neighbour does in a second when it has the device for itself.
    fn neighbours_alone(
        &self,
        seat: &Seat,
        calibrated: &Calibrated,
        stop: BorrowedFd<'_>,
    ) -> Result<BTreeMap<Neighbour, f64>> {
        let mut rates = BTreeMap::new();
        for neighbour in [
            Neighbour::HogSm,
            Neighbour::HogDram,
            Neighbour::HogL2,
            Neighbour::HogPcie,
        ] {
            // Only what something is measured beside is compared with itself alone.
            if !self.agenda.cells.iter().any(|cell| cell.neighbour == neighbour) {
                continue;
            }
            let words = load::neighbour(neighbour, calibrated.fma, &calibrated.ready, ALONE.most_s);
            let mut tenant = match words {
                Some(words) => Tenant::start(&self.site, seat, &words)?,
                None => continue,
            };
            tenant.ready()?;
            let window = ALONE.window();
            let begin = clock::now()?.saturating_add(LEAD);
            tenant.tell(&input(&[], begin, begin.saturating_add(window.end)))?;
            self.site.wait(begin.saturating_add(window.end), stop)?;
            let events = tenant.events(begin.saturating_add(window.end).saturating_add(AFTER))?;
            // What cannot be measured alone is not compared.
            if let Some(rate) = tranche_bench::measured::rate(window, &events) {
                rates.insert(neighbour, rate);
            }
        }
        Ok(rates)
    }

    /// Counts the multiprocessors that each share of a way reaches.
    fn look_at(&self, setup: &Setup) -> RecordedWay {
        let mut sms = Vec::new();
        for seat in &setup.seats {
            let probed = self.probe(seat);
            if let Err(error) = &probed {
                tracing::warn!("{}", line(error));
            }
            sms.push(probed.ok().flatten());
        }
        RecordedWay {
            setup: setup.clone(),
            sms,
            context_ns: Vec::new(),
            mps_server_mib: None,
        }
    }

    fn probe(&self, seat: &Seat) -> Result<Option<u32>> {
        let mut tenant = Tenant::start(&self.site, seat, &load::once("probe"))?;
        tenant.ready()?;
        let now = clock::now()?;
        tenant.tell(&input(&[], now, now.saturating_add(1)))?;
        let events = tenant.events(now.saturating_add(AFTER))?;
        let seen = events.iter().find_map(|event| match event {
            Event::Probed { sms, .. } => u32::try_from(sms.len()).ok(),
            _ => None,
        });
        Ok(seen)
    }

    /// Measures a cell once.
    fn measure(
        &self,
        setup: &Setup,
        cell: Cell,
        calibrated: &Calibrated,
        seed: u64,
        stop: BorrowedFd<'_>,
    ) -> std::result::Result<(Measured, Beside), Ended> {
        let length = self.options.length;
        let seconds = length.measure_s + length.warm_up_s;
        let window: Window = length.window();
        let (Some(first), second) = (setup.seats.first(), setup.seats.get(1)) else {
            return Err(Ended::ByFailure(self.site.failed("has no share")));
        };
        let words = load::neighbour(cell.neighbour, calibrated.fma, &calibrated.ready, seconds);
        let mut serve = Tenant::start(&self.site, first, &load::serve(calibrated.fma, seconds))?;
        let mut neighbour = match (second, words) {
            (Some(seat), Some(words)) => Some(Tenant::start(&self.site, seat, &words)?),
            _ => None,
        };
        let mut context_ns = vec![serve.ready()?.context_ns];
        if let Some(neighbour) = neighbour.as_mut() {
            context_ns.push(neighbour.ready()?.context_ns);
        }
        let seen = Beside {
            context_ns,
            mps_server_mib: cell.way.is_mps().then(|| self.site.device.mps_server_mib()).flatten(),
        };
        let requests = arrivals(seed, mean_gap(calibrated.request_ns, cell.load), window.until)?;
        let begin = clock::now()?.saturating_add(LEAD);
        let end = begin.saturating_add(window.end);
        serve.tell(&input(&requests, begin, end))?;
        if let Some(neighbour) = neighbour.as_mut() {
            neighbour.tell(&input(&[], begin, end))?;
        }
        let samples = self.site.wait(end, stop).map_err(Ended::ByPerson)?;
        let until = end.saturating_add(AFTER);
        let of_neighbour = neighbour.as_mut().map(|one| one.events(until)).transpose()?;
        let of_serve = serve.events(until)?;
        let of_neighbour = of_neighbour.unwrap_or_default();
        let measured = Measured::of(window, &requests, &of_serve, &of_neighbour, &samples)?;
        Ok((measured, seen))
    }
}

/// What is seen of a way in addition to the cell that is measured.
struct Beside {
    /// How long the first calls of CUDA took in each process, in nanoseconds.
    context_ns: Vec<u64>,
    /// The memory of the GPU in MiB that the MPS server has.
    mps_server_mib: Option<u64>,
}

/// Why a cell has no figures.
enum Ended {
    /// The run goes on with the next one.
    ByFailure(Error),
    /// It does not.
    ByPerson(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::ByFailure(error)
    }
}
