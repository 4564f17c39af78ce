//! The planner on tables of products.

mod brute_force;
mod layouts;
mod products;
mod properties;
