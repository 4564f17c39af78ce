//! The figures of servers in simulated time.

use super::*;
use crate::cell::Neighbour;
use crate::schedule::arrivals;
use crate::way::Way;
use proptest::prelude::*;

const WINDOW: Window = Window {
    from: 5_000_000_000,
    until: 305_000_000_000,
    end: 306_000_000_000,
};

/// What a server prints that serves one request after the other. `service` says how long one takes that begins at a
/// time.
pub(crate) fn served(arrivals: &[u64], end: u64, service: impl Fn(u64) -> u64) -> Vec<Event> {
    let mut free = 0;
    let one = |intended: &u64| {
        let (intended, began) = (*intended, free.max(*intended));
        if began >= end {
            return Event::Late { intended };
        }
        free = began + service(began);
        Event::Served {
            intended,
            began,
            done: free,
        }
    };
    arrivals.iter().map(one).collect()
}

fn service(arrivals: &[u64], events: &[Event]) -> Service {
    Service::of(WINDOW, arrivals, events).unwrap()
}

/// The mean wait of M/D/1 is rho / (2 (1 - rho)) times of service (Pollaczek and Khinchin).
#[test]
fn the_mean_wait_is_that_of_the_closed_form() {
    const TIME: u64 = 3_000_000;
    for (load, within) in [(10, 0.03), (30, 0.03), (50, 0.03), (70, 0.05), (90, 0.12)] {
        let mut waits = Vec::new();
        for seed in 0..6 {
            let arrivals = arrivals(seed, crate::schedule::mean_gap(TIME, load), WINDOW.until).unwrap();
            let measured = service(&arrivals, &served(&arrivals, WINDOW.end, |_| TIME));
            waits.push((measured.mean().unwrap() - TIME as f64) / TIME as f64);
            assert_eq!(measured.late(), 0);
            let expected = f64::from(load) / 100.0 / (TIME as f64 / 1e9);
            assert!(
                (measured.throughput() / expected - 1.0).abs() < 0.03,
                "{load}: {}",
                measured.throughput()
            );
        }
        let rho = f64::from(load) / 100.0;
        let (mean, closed) = (waits.iter().sum::<f64>() / 6.0, rho / (2.0 * (1.0 - rho)));
        assert!((mean / closed - 1.0).abs() < within, "load {load}: {mean} {closed}");
    }
}

/// A server that stands still for a second keeps everybody waiting who arrives meanwhile. A figure that counts from the
/// beginning of service would show one slow request in thousands.
#[test]
fn a_server_that_stalls_is_seen_in_the_percentiles() {
    const TIME: u64 = 2_000_000;
    let stall = 60_000_000_000;
    let arrivals = arrivals(1, crate::schedule::mean_gap(TIME, 50), WINDOW.until).unwrap();
    let stalls = served(&arrivals, WINDOW.end, |began| {
        match (stall..stall + 2 * TIME).contains(&began) {
            true => TIME + 10_000_000_000,
            false => TIME,
        }
    });
    let measured = service(&arrivals, &stalls);
    assert!(measured.percentile(100).unwrap() >= 10_000_000_000);
    assert!(
        measured.percentile(99).unwrap() >= 5_000_000_000,
        "{:?}",
        measured.percentile(99)
    );
    assert!(measured.percentile(50).unwrap() < 10_000_000);
    // The same events, counted from the beginning of service, hide it.
    let mut from_begin: Vec<u64> = stalls
        .iter()
        .filter_map(|event| match event {
            Event::Served { began, done, .. } => Some(done - began),
            _ => None,
        })
        .collect();
    from_begin.sort();
    assert!(crate::statistics::percentile(&from_begin, 99).unwrap() == TIME);
}

#[test]
fn requests_that_are_never_served_are_counted_with_the_time_they_waited() {
    // A server at twice its capacity.
    let arrivals = arrivals(1, 2_000_000, WINDOW.until).unwrap();
    let measured = service(&arrivals, &served(&arrivals, WINDOW.end, |_| 4_000_000));
    let part = measured.late() as f64 / measured.requests() as f64;
    assert!((part - 0.5).abs() < 0.02, "{part}");
    assert!(measured.percentile(50).unwrap() > 70_000_000_000);
    assert!(measured.goodput(10_000_000_000) < 20.0);
    assert!((measured.throughput() - 250.0).abs() < 1.0);
}

#[test]
fn a_program_that_leaves_out_slow_requests_is_not_believed() {
    let arrivals = [6_000_000_000, 6_500_000_000, 7_000_000_000];
    let mut events = served(&arrivals, WINDOW.end, |_| 1000);
    let reversed: Vec<Event> = events.iter().rev().cloned().collect();
    assert_eq!(service(&arrivals, &reversed), service(&arrivals, &events));
    events.remove(1);
    let error = Service::of(WINDOW, &arrivals, &events).unwrap_err();
    assert!(
        error.to_string().contains("printed 2 requests, which are not the 3"),
        "{error}"
    );
    events.push(events[0].clone());
    assert!(
        Service::of(WINDOW, &arrivals, &events).is_err(),
        "one twice, in place of another"
    );
    assert!(Service::of(WINDOW, &[], &events).is_ok(), "back to back");
}

#[test]
fn what_happens_before_and_after_the_window_does_not_count() {
    let window = Window::new(1, 2);
    assert_eq!(
        (window.from, window.until, window.end),
        (1_000_000_000, 3_000_000_000, 4_000_000_000)
    );
    let work = |began, done, units| Event::Finished { began, done, units };
    // Half of the first piece, all of the second, and none of the third.
    let events = [
        work(500_000_000, 1_500_000_000, 100),
        work(1_500_000_000, 2_000_000_000, 7),
        work(3_000_000_000, 3_500_000_000, 9),
    ];
    assert_eq!(rate(window, &events), Some(28.5));
    assert_eq!(rate(window, &[]), None);
    assert_eq!(rate(window, &[work(2_000_000_000, 2_000_000_000, 5)]), Some(0.0));
}

fn cell(neighbour: Neighbour) -> Cell {
    Cell {
        way: Way::MpsFree,
        neighbour,
        load: 50,
    }
}

#[test]
fn an_error_of_cuda_is_measured_with_its_cause() {
    let failed = Event::Error {
        at: 25_000_000,
        call: "cuStreamSynchronize".into(),
        code: 715,
        name: "X".into(),
    };
    let faulted = Event::Faulted {
        at: 13_000_000,
        code: 715,
        name: "X".into(),
    };
    let measured = Measured::of(WINDOW, &[1], std::slice::from_ref(&failed), &[faulted], &[]).unwrap();
    assert_eq!(
        (measured.died_after, measured.has_faulted, measured.service.is_none()),
        (Some(12_000_000), true, true)
    );
    let figures = Figures::new(cell(Neighbour::Fault), &Ok(vec![measured]), Others::default());
    assert_eq!(figures.died_after_ms.unwrap().median, 12.0);
    assert!(figures.has_faulted && figures.p99_ms.is_none());
    let other = Measured::of(WINDOW, &[1], &[failed], &[], &[]).unwrap();
    assert_eq!((other.died_after, other.has_faulted), (None, false));
    assert_eq!(other.error.as_deref(), Some("cuStreamSynchronize: X"));
}

#[test]
fn a_cell_is_compared_with_the_first_process_alone() {
    let arrivals = arrivals(1, 6_000_000, WINDOW.until).unwrap();
    let with = |time: u64, rate| {
        let neighbour = [Event::Finished {
            began: 0,
            done: WINDOW.end,
            units: rate,
        }];
        Measured::of(
            WINDOW,
            &arrivals,
            &served(&arrivals, WINDOW.end, |_| time),
            &neighbour,
            &[],
        )
        .unwrap()
    };
    let alone = [3_000_000; 3].map(|time| with(time, 0));
    let shared = vec![
        with(4_000_000, 30_600),
        with(5_000_000, 30_600),
        with(4_500_000, 30_600),
    ];
    let others = Others {
        alone: &alone,
        idle: &[],
        rate: Some(200.0),
    };
    let figures = Figures::new(cell(Neighbour::Batch), &Ok(shared), others);
    let slowdown = figures.slowdown_p50.unwrap();
    assert!(
        slowdown.least > 1.2 && slowdown.median > slowdown.least && slowdown.most > slowdown.median,
        "{slowdown:?}"
    );
    assert_eq!(figures.neighbour_slowdown.unwrap().median, 2.0);
    assert_eq!(figures.weighted_speed_up.map(|sum| (sum * 10.0).round()), Some(15.0));
    assert_eq!(figures.jain.map(|index| (index * 10.0).round()), Some(9.0));
    // Twice the 99th percentile alone is the bound.
    let bound = alone[0].service.as_ref().unwrap().percentile(99).unwrap() * 2;
    let latencies = with(4_500_000, 0).service.unwrap();
    let expected = Spread::of([latencies.goodput(bound)]).unwrap();
    assert_eq!(figures.goodput.unwrap().median, expected.median);
    assert!(expected.median < latencies.goodput(u64::MAX) && latencies.goodput(bound / 2) < expected.median);
    let failed = Figures::new(cell(Neighbour::Batch), &Err("no memory left".into()), others);
    assert_eq!(
        (failed.requests, failed.p99_ms, failed.failed.as_deref()),
        (0, None, Some("no memory left"))
    );
}

proptest! {
    #[test]
    fn no_request_is_forgotten(seed in any::<u64>(), load in 5_u32..300, time in 500_000_u64..20_000_000) {
        let window = Window::new(1, 5);
        let arrivals = arrivals(seed, crate::schedule::mean_gap(time, load), window.until).unwrap();
        let events = served(&arrivals, window.end, |_| time);
        let measured = Service::of(window, &arrivals, &events).unwrap();
        let counted = arrivals.iter().filter(|at| window.has(**at)).count() as u64;
        prop_assert_eq!(measured.requests(), counted);
        prop_assert!(measured.late() <= counted);
        let percentiles: Vec<_> = [50, 95, 99, 100].iter().filter_map(|p| measured.percentile(*p)).collect();
        prop_assert!(percentiles.is_sorted());
        prop_assert!(percentiles.iter().all(|latency| *latency >= time.min(window.end - window.until)));
        prop_assert!(measured.goodput(u64::MAX) * window.seconds() <= counted as f64 + 0.001);
    }
}
