function n(t,e){try{return t().getItem(e)}catch{return null}}function l(t,e,r){try{r===null?t().removeItem(e):t().setItem(e,r)}catch{}}export{n as a,l as b};
