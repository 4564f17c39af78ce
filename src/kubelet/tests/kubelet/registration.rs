//! How a resource comes to the kubelet, and comes back.

use crate::bed::{Bed, GPU, Plugin, until};
use crate::offers::{replicas, whole};
use std::fs;
use std::time::Duration;
use tranche_protocol::Offer;

#[test]
fn the_plugin_is_served_before_it_registers() {
    let bed = Bed::new(vec![whole("GPU-0"), whole("GPU-1")]);
    let _plugin = bed.plugin();
    // The kubelet asks for the options before it answers, and fails the registration otherwise.
    bed.wait_allocatable(2);
    let state = bed.kubelet.state();
    assert_eq!(state.registrations.len(), 1);
    let request = &state.registrations[0].1;
    assert_eq!(
        (
            request.version.as_str(),
            request.endpoint.as_str(),
            request.resource_name.as_str()
        ),
        ("v1beta1", "tranche-nvidia.com_gpu.sock", GPU)
    );
}

#[test]
fn after_a_restart_of_the_kubelet_the_resource_is_back_and_running_pods_are_untouched() {
    let mut bed = Bed::new(vec![replicas("GPU-0", 4)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    let before = bed.kubelet.admit("a", "c", GPU, 2).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    for restart in 2..5 {
        bed.kubelet.stop();
        bed.kubelet.start();
        bed.wait_allocatable(4);
        assert!(bed.kubelet.registered(GPU) >= restart);
        // The answer of the checkpoint is replayed, and the plugin is not asked for it.
        assert_eq!(bed.kubelet.admit("a", "c", GPU, 2).unwrap(), before);
        assert_eq!(bed.kubelet.run("a", "c", GPU).unwrap(), before);
    }
    let state = bed.kubelet.state();
    let allocated = state.calls.iter().filter(|call| call.starts_with("Allocate"));
    assert_eq!(allocated.count(), 1);
    drop(state);
    assert_eq!(bed.broker.reserved("a"), bed.kubelet.ids("a"));
    assert!(
        bed.broker
            .node()
            .asked
            .iter()
            .all(|asked| asked.starts_with("reserve a"))
    );
}

#[test]
fn a_kubelet_that_is_away_for_long_finds_the_plugin_when_it_starts() {
    let mut bed = Bed::asleep(vec![whole("GPU-0")]);
    bed.broker.listen();
    let _plugin = bed.plugin();
    until("the plugin is served", || bed.socket(GPU).exists());
    bed.kubelet.start();
    bed.wait_allocatable(1);
}

#[test]
fn a_socket_that_was_removed_is_made_anew_and_the_connection_stays() {
    let bed = Bed::new(vec![replicas("GPU-0", 2)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    fs::remove_file(bed.socket(GPU)).unwrap();
    until("the socket is back", || bed.socket(GPU).exists());
    assert_eq!(bed.kubelet.registered(GPU), 1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    // The new socket is served, too: the list over the old connection still changes.
    bed.broker.hold("GPU-0", None);
    bed.wait_allocatable(1);
}

#[test]
fn a_new_kubelet_socket_with_the_number_of_the_old_inode_is_noticed() {
    let mut bed = Bed::new(vec![whole("GPU-0")]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(1);
    let mut same = 0;
    for restart in 2..7 {
        same += u32::from(bed.kubelet.replace_socket());
        until("the resource is registered again", || {
            bed.kubelet.registered(GPU) >= restart
        });
        bed.wait_allocatable(1);
    }
    eprintln!("{same} of 5 sockets had the number of the one before");
}

#[test]
fn the_late_end_of_an_old_stream_disconnects_the_plugin_for_a_moment_only() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    let old = bed.plugin();
    bed.wait_allocatable(1);
    let new = bed.plugin();
    until("the new plugin is registered", || bed.kubelet.registered(GPU) >= 2);
    // Its stream ends, and the kubelet disconnects the new plugin with it.
    old.stop();
    until("the new plugin is registered again", || {
        bed.kubelet.registered(GPU) >= 3
    });
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    new.stop();
}

#[test]
fn of_two_plugins_the_newer_one_has_the_socket_and_the_older_one_takes_it_when_that_ends() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    let mut settings = bed.settings();
    // If the newer one was there for a moment only, the older one notices by this that it was.
    settings.times.check = Duration::from_millis(50);
    let old = Plugin::start(settings.clone());
    bed.wait_allocatable(1);
    let new = Plugin::start(settings);
    until("the new plugin is registered", || bed.kubelet.registered(GPU) >= 2);
    bed.wait_allocatable(1);
    new.stop();
    // The kubelet has disconnected both.
    until("the old plugin allocates", || {
        bed.kubelet.admit("a", "c", GPU, 1).is_ok()
    });
    assert!(bed.socket(GPU).exists());
    old.stop();
    assert_eq!(bed.sockets(), ["kubelet.sock"]);
}

#[test]
fn two_plugins_that_fight_for_a_resource_do_so_less_and_less_often() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    bed.kubelet.state().is_fighting = true;
    let _plugin = bed.plugin();
    until("it was registered five times", || bed.kubelet.registered(GPU) >= 5);
    let times: Vec<_> = bed
        .kubelet
        .state()
        .registrations
        .iter()
        .map(|(time, _)| *time)
        .collect();
    for (pair, wait) in times.windows(2).zip([100, 200, 400, 800]) {
        // The kubelet notes the time before it answers.
        let gap = pair[1] - pair[0];
        assert!(gap >= Duration::from_millis(wait), "{gap:?} instead of {wait} ms");
    }
    bed.kubelet.state().is_fighting = false;
    bed.wait_allocatable(1);
}

#[test]
fn a_resource_that_another_plugin_registered_is_back_after_that_one_has_ended() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    let mut settings = bed.settings();
    settings.times.check = Duration::from_millis(50);
    let _plugin = Plugin::start(settings);
    for _ in 0..3 {
        bed.wait_allocatable(1);
        bed.kubelet.forget(GPU);
    }
    bed.wait_allocatable(1);
}

#[test]
fn a_resource_comes_and_goes_with_the_offers() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(1);
    let mig = "nvidia.com/mig-1g.10gb";
    bed.broker.change(|offers| {
        let mut instance = whole("MIG-0");
        instance.resource = mig.into();
        instance.gpu = "GPU-1".into();
        offers.push(instance);
    });
    until("the new resource is there", || bed.kubelet.allocatable(mig) == 1);
    assert_eq!(bed.kubelet.registered(GPU), 1, "the other one is left alone");
    bed.broker.change(|offers| {
        offers.pop();
    });
    until("its socket is gone", || !bed.socket(mig).exists());
    until("the kubelet has no device of it", || {
        bed.kubelet.devices(mig).is_empty()
    });
    assert_eq!(bed.kubelet.allocatable(GPU), 1);
    bed.broker.change(|offers| {
        let mut instance = whole("MIG-1");
        instance.resource = mig.into();
        offers.push(instance);
    });
    until("it is back", || bed.kubelet.allocatable(mig) == 1);
}

/// A GPU is divided anew while the plugin runs: one instance stays, with the pod that has it.
#[test]
fn the_resources_follow_a_layout_of_mig() {
    let instance = |profile: &str, uuid: &str| Offer {
        resource: format!("nvidia.com/mig-{profile}"),
        gpu: "GPU-1".into(),
        ..whole(uuid)
    };
    let (small, large) = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb");
    let all = ["MIG-0", "MIG-1", "MIG-2"].map(|uuid| instance("1g.10gb", uuid));
    let bed = Bed::new([whole("GPU-0")].into_iter().chain(all.clone()).collect());
    let _plugin = bed.plugin();
    until("three are allocatable", || bed.kubelet.allocatable(small) == 3);
    let had = bed.kubelet.admit("a", "c", small, 1).unwrap();
    let kept = bed.kubelet.ids("a").pop_first().unwrap();
    let held = all.iter().find(|offer| offer.device == kept).unwrap().clone();
    // The layout `3g.40gb` and the one that is in use.
    bed.broker.change(|offers| {
        offers.retain(|offer| offer.resource != small || offer.device == kept);
        offers.push(instance("3g.40gb", "MIG-3"));
    });
    until("the new resource is there", || bed.kubelet.allocatable(large) == 1);
    until("the old one has what is left", || bed.kubelet.devices(small).len() == 1);
    assert_eq!(bed.kubelet.run("a", "c", small).unwrap(), had);
    assert_eq!(bed.kubelet.admit("b", "c", large, 1).unwrap(), ["nvidia.com/gpu=MIG-3"]);
    assert!(
        bed.kubelet.admit("d", "c", small, 1).is_err(),
        "the others do not exist any more"
    );
    assert_eq!((bed.kubelet.registered(GPU), bed.kubelet.registered(small)), (1, 1));
    // And back: the driver gives new instances other UUIDs.
    bed.kubelet.delete("b");
    bed.broker.change(|offers| {
        offers.retain(|offer| offer.resource == GPU);
        offers.extend([held.clone(), instance("1g.10gb", "MIG-4"), instance("1g.10gb", "MIG-5")]);
    });
    until("three are there again", || bed.kubelet.allocatable(small) == 3);
    until("the other resource is gone", || bed.kubelet.devices(large).is_empty());
}

#[test]
fn stale_sockets_of_a_killed_plugin_are_removed() {
    let bed = Bed::new(vec![whole("GPU-0")]);
    let killed = bed.plugin();
    bed.wait_allocatable(1);
    drop(killed);
    until("the kubelet notices", || bed.kubelet.allocatable(GPU) == 0);
    assert!(bed.socket(GPU).exists());
    bed.broker
        .change(|offers| offers[0].resource = "nvidia.com/gpu.shared".into());
    let plugin = bed.plugin();
    until("the other resource is there", || {
        bed.kubelet.allocatable("nvidia.com/gpu.shared") == 1
    });
    assert!(!bed.socket(GPU).exists());
    plugin.stop();
}
