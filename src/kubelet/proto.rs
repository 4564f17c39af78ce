//! The kubelet's interfaces, generated from the files in `proto/`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    reason = "generated code"
)]

/// The device plugin interface, v1beta1.
pub mod deviceplugin {
    include!(concat!(env!("OUT_DIR"), "/deviceplugin/v1beta1.rs"));
}

/// PodResources v1.
pub mod podresources {
    include!(concat!(env!("OUT_DIR"), "/podresources/v1.rs"));
}
