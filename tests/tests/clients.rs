//! The official SDKs against gateway and mock (X1, X4, X6, M2, M5, F15, F19, G12): what their users get to see.

use surefoot_tests::clients::{Language, run_script};
use surefoot_tests::{Runtime, on_each_runtime};

on_each_runtime!(
    the_openai_sdk_for_python_works_through_the_gateway,
    the_anthropic_sdk_for_python_works_through_the_gateway,
    the_openai_sdk_for_node_works_through_the_gateway,
);

fn the_openai_sdk_for_python_works_through_the_gateway(runtime: &Runtime) {
    run_script(runtime, Language::Python, "openai_sdk.py", 40);
}

fn the_anthropic_sdk_for_python_works_through_the_gateway(runtime: &Runtime) {
    run_script(runtime, Language::Python, "anthropic_sdk.py", 33);
}

fn the_openai_sdk_for_node_works_through_the_gateway(runtime: &Runtime) {
    run_script(runtime, Language::Node, "openai_sdk.mjs", 30);
}
