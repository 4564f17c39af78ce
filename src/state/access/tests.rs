use super::*;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use rustix::fs::{XattrFlags, getxattr, inotify, setxattr};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use tranche_core::types::HostPath;
use tranche_plan::access::{AccessList, NodeAccess, Opening, Right};
use tranche_plan::inventory::DeviceNode;

const LIST: &str = "system.posix_acl_access";

/// The node of /dev/null's device in a directory, and what the inventory says of it; `None` where it cannot be made.
fn device(test: &str) -> Option<(tempfile::TempDir, DeviceNode)> {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("nvidia0");
    if let Err(why) = mknod(&path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), makedev(1, 3)) {
        tranche_test_support::skip::not_run(&format!("state::access::{test}"), &why.to_string());
        return None;
    }
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let mut node = tranche_plan::sim::open("t4x2").unwrap().gpus.remove(0).node.unwrap();
    (node.host, node.major, node.minor) = (HostPath::new(path).unwrap(), 1, 3);
    Some((top, node))
}

fn listed(right: Right, users: &[u32]) -> Opening {
    Opening::Listed(AccessList::new(right, users.iter().copied(), std::iter::empty()))
}

fn set(node: &DeviceNode, opening: Opening, params: NodeParams) -> Result<()> {
    node::set(
        &NodeAccess {
            node,
            gpu: None,
            opening,
        },
        params,
    )
}

/// Mode, owner, group, and the list.
fn state(node: &DeviceNode) -> (u32, u32, u32, Option<Vec<u8>>) {
    let data = fs::metadata(node.host.as_path()).unwrap();
    let mut list = vec![0; 4096];
    let length = getxattr(node.host.as_path(), LIST, list.as_mut_slice());
    let list = length.ok().map(|length| list[..length].to_vec());
    (data.mode() & 0o7777, data.uid(), data.gid(), list)
}

#[test]
fn a_node_gets_all_of_what_it_is_to_have_whatever_it_has() {
    let Some((_top, node)) = device("a_node_gets_all_of_what_it_is_to_have_whatever_it_has") else {
        return;
    };
    let params = NodeParams {
        uid: 7,
        gid: 44,
        mode: 0o640,
        modifies: false,
    };
    let list =
        |users: &[u32]| AccessList::new(Right::ReadAndWrite, users.iter().copied(), std::iter::empty()).attribute();
    let many: Vec<u32> = (1000..1300).collect();
    let states = [
        (listed(Right::ReadAndWrite, &[]), (0o660, 0, 0, None)),
        (listed(Right::ReadAndWrite, &many), (0o660, 0, 0, list(&many))),
        (listed(Right::ReadAndWrite, &[1000]), (0o660, 0, 0, list(&[1000]))),
        (Opening::Everybody(0o666), (0o666, 0, 0, None)),
        (Opening::ByDriver, (0o640, 7, 44, None)),
        (listed(Right::Read, &[]), (0o440, 0, 0, None)),
    ];
    // From each state to each other one, and again to the same.
    for (from, _) in &states {
        for (to, expected) in &states {
            set(&node, from.clone(), params).unwrap();
            set(&node, to.clone(), params).unwrap();
            assert_eq!(state(&node), *expected, "{from:?} {to:?}");
        }
    }
    // What others leave: a longer list, and a mode that masks it.
    let strange = list(&[1, 2, 3]).unwrap();
    setxattr(node.host.as_path(), LIST, &strange, XattrFlags::empty()).unwrap();
    fs::set_permissions(node.host.as_path(), Permissions::from_mode(0o606)).unwrap();
    chown(node.host.as_path(), Some(5), Some(5)).unwrap();
    set(&node, listed(Right::ReadAndWrite, &[1000]), params).unwrap();
    assert_eq!(state(&node), (0o660, 0, 0, list(&[1000])));
}

#[test]
fn only_the_driver_s_node_is_changed() {
    let Some((top, node)) = device("only_the_driver_s_node_is_changed") else {
        return;
    };
    let params = NodeParams::default();
    let other = DeviceNode {
        minor: 5,
        ..node.clone()
    };
    assert!(set(&other, listed(Right::Read, &[]), params).is_err());
    assert_eq!(state(&node).0, 0o666);
    let file = top.path().join("file");
    fs::write(&file, "").unwrap();
    let link = top.path().join("link");
    symlink(node.host.as_path(), &link).unwrap();
    for path in [file, link] {
        let named = DeviceNode {
            host: HostPath::new(&path).unwrap(),
            ..node.clone()
        };
        let error = set(&named, Opening::Everybody(0o600), params).unwrap_err().to_string();
        assert!(error.contains("is not the driver's device node"), "{error}");
        assert_eq!(state(&node).0, 0o666);
    }
    let missing = DeviceNode {
        host: HostPath::new(top.path().join("none")).unwrap(),
        ..node
    };
    set(&missing, Opening::Everybody(0o600), params).unwrap();
}

#[test]
fn nodes_that_somebody_opens_meanwhile_are_not_tranche_s_any_more() {
    let Some((top, node)) = device("nodes_that_somebody_opens_meanwhile_are_not_tranche_s_any_more") else {
        return;
    };
    let at = |path: &str| top.path().join(path);
    let params = at("proc/driver/nvidia/params");
    fs::create_dir_all(params.parent().unwrap()).unwrap();
    fs::write(&params, "ModifyDeviceFiles: 0\n").unwrap();
    fs::write(at(CLOSED), "").unwrap();
    let mut inventory = tranche_plan::sim::open("t4x2").unwrap();
    inventory.gpus.truncate(1);
    inventory.gpus[0].node = Some(node.clone());
    let mut host = HostOptions::default();
    host.roots.proc_root = Some(at("proc"));
    let (accounts, plan) = (Accounts::new(Default::default()), Plan::default());
    let kept = KeptNodes {
        host: &host,
        state_dir: top.path(),
        accounts: &accounts,
        starting: &[],
    };
    let claims = Claims::open(top.path()).unwrap();
    let opened = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&opened, &params, inotify::WatchFlags::OPEN).unwrap();
    std::thread::scope(|threads| {
        let locked = claims.lock().unwrap();
        let keeping = threads.spawn(|| kept.keep(&inventory, &plan));
        // The parameters are read after the first look at the mark.
        rustix::io::read(&opened, &mut [0; 64]).unwrap();
        fs::remove_file(at(CLOSED)).unwrap();
        fs::set_permissions(node.host.as_path(), Permissions::from_mode(0o600)).unwrap();
        drop(locked);
        let wrong = keeping.join().unwrap().unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    assert_eq!(state(&node).0, 0o600);
}
