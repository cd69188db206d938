//! Every input and every action, to a line and back.
