//! Which service a call is for. tonic's own router brings axum.

use crate::dra::ClaimHandler;
use crate::dra::claims::Claims;
use crate::dra::health::HealthService;
use crate::proto::dra::dra_plugin_server::{self as v1, DraPluginServer};
use crate::proto::drabeta1::dra_plugin_server::{self as v1beta1, DraPluginServer as DraBetaPluginServer};
use crate::proto::drahealth::dra_resource_health_server::{self as health, DraResourceHealthServer};
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};

/// The services on the driver's socket.
#[derive(Debug, Clone)]
pub(super) struct Routes<C> {
    v1: DraPluginServer<C>,
    v1beta1: DraBetaPluginServer<C>,
    health: DraResourceHealthServer<HealthService>,
}

impl<H: ClaimHandler> Routes<Claims<H>> {
    pub(super) fn new(claims: Claims<H>, health: HealthService) -> Self {
        Self {
            v1: DraPluginServer::new(claims.clone()),
            v1beta1: DraBetaPluginServer::new(claims),
            health: DraResourceHealthServer::new(health),
        }
    }
}

impl<H: ClaimHandler> Service<http::Request<Body>> for Routes<Claims<H>> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // `/package.Service/Method`
        match request.uri().path().split('/').nth(1) {
            Some(v1::SERVICE_NAME) => self.v1.call(request),
            Some(v1beta1::SERVICE_NAME) => self.v1beta1.call(request),
            Some(health::SERVICE_NAME) => self.health.call(request),
            _ => Box::pin(async { Ok(Status::unimplemented("unknown service").into_http()) }),
        }
    }
}
