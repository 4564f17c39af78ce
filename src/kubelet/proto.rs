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

/// The interface of drivers for dynamic resource allocation, v1.
pub mod dra {
    include!(concat!(env!("OUT_DIR"), "/dra/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
}

/// The same, v1beta1: it has no ids of shares.
pub mod drabeta1 {
    include!(concat!(
        env!("OUT_DIR"),
        "/drabeta1/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"
    ));
}

/// The health of the devices of such a driver, v1alpha1.
pub mod drahealth {
    include!(concat!(env!("OUT_DIR"), "/drahealth/v1alpha1.rs"));
}

/// The registration of plugins, v1.
pub mod pluginregistration {
    include!(concat!(env!("OUT_DIR"), "/pluginregistration/pluginregistration.rs"));
}
