//! The planner on tables of products.

mod brute_force;
mod choose;
mod layouts;
mod mig_parted;
mod possible;
mod products;
mod properties;
