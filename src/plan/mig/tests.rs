//! The planner on tables of products.

mod brute_force;
mod choose;
mod configurations;
mod layouts;
mod mig_parted;
mod possible;
mod products;
mod properties;
